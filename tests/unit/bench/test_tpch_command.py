"""The command: its output and its exit status, right and wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.tpch import command
from bench.tpch.compare import Plan, RunFailed
from bench.tpch.records import JobResult, Run
from bench.tpch.reference import Reference

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
_SMALL = ["--scale", "0.01", "--parts", "2"]


@pytest.fixture(autouse=True)
def cached(cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))


def test_equal_answers_end_with_0(capsys: pytest.CaptureFixture[str], cache_home: Path) -> None:
    assert command.main(["check", *_SMALL, "--queries", "6,14"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "2 of 2 equal" and said[2].startswith("q06 Forecasting revenue change")
    assert [path.name for path in (cache_home / "penstock" / "tpch").iterdir()] == ["sf0.01-2"]


def test_a_wrong_answer_ends_with_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    right = Reference.answer
    monkeypatch.setattr(Reference, "answer", lambda self, number: right(self, number) * 1.001)
    assert command.main(["check", *_SMALL, "--queries", "6"]) == 1
    assert "revenue: " in capsys.readouterr().out


def test_a_query_that_fails_is_a_line_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Reference.answer

    def answer(self: Reference, number: int) -> Any:
        if number == 6:
            raise ValueError("no such answer")
        return right(self, number)

    monkeypatch.setattr(Reference, "answer", answer)
    assert command.main(["check", *_SMALL, "--queries", "6,14"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[2].endswith("ValueError: no such answer") and said[-1] == "1 of 2 equal"


def test_a_run_that_fails_ends_the_comparison(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(plan: Plan, way: str) -> object:
        (plan.directory / f"{way}-job-0.log").write_text("Traceback\nMemoryError: all of it", encoding="utf-8")
        raise RunFailed("job-0 ended with status 1")

    monkeypatch.setattr(command, "run", run)
    assert command.main(["compare", *_SMALL]) == 1
    said = capsys.readouterr().err
    assert "static: job-0 ended with status 1" in said and "MemoryError: all of it" in said


def test_the_logs_of_each_round_can_be_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(plan: Plan, way: str) -> Run:
        (plan.directory / f"{way}-job-0.log").write_text("it stood still", encoding="utf-8")
        return Run(way, 2, 2, [JobResult("job-0", 0.0, 1.0, 0.5, 0.25, {"q06": 1.0}, {"q06": 1})], 0.5, 2.0, [])

    monkeypatch.setattr(command, "run", run)
    kept = tmp_path / "kept"
    options = ["--jobs", "1", "--rounds", "2", "--queries", "6", "--ways", "penstock", "--keep", str(kept)]
    assert command.main(["compare", *_SMALL, *options]) == 0
    assert capsys.readouterr().out
    logs = [kept / f"round-{number}" / "penstock-job-0.log" for number in (1, 2)]
    assert [log.read_text(encoding="utf-8") for log in logs] == ["it stood still"] * 2


def test_each_way_is_a_row_with_the_orders_that_there_were(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(plan: Plan, way: str) -> Run:
        jobs = [JobResult(f"job-{n}", 0.0, n + 1.0, 0.5, 0.25, {"q06": 1.0}, {"q06": 1}) for n in range(plan.jobs)]
        orders = [["job-1=job-0"], ["job-1", "job-0"]] if plan.order_of(way) else []
        return Run(way, 2, 2, jobs, 0.5, 2.0, orders)

    monkeypatch.setattr(command, "run", run)
    options = "--jobs 2 --rounds 2 --unequal --every 5 --queries 6,14 --ways static-workers,penstock:srjf"
    assert command.main(["compare", *_SMALL, *options.split(), "--json", str(tmp_path / "runs.json")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 jobs of 2/1 queries at scale 0.01 on ") and ", one every 5 s\n" in said
    assert [line.split()[1] for line in said.splitlines() if line[:1].isdigit()][1:] == [
        "static-workers",
        "penstock:srjf",
        "penstock:srjf",  # the second round begins with the other
        "static-workers",
    ]
    assert said.count("in order: job-1=job-0; then job-1, job-0") == 2
    assert "jobs of penstock:srjf: 1.0 2.0 s" in said
    assert len(json.loads((tmp_path / "runs.json").read_text())["runs"]) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["--queries", "23"],
        ["--set", "network"],
        ["--memory", "much"],
        ["--ways", "static,penstok"],
        ["--every", "-1"],
        ["--every", "inf"],
    ],
)
def test_meaningless_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["compare", *_SMALL, *arguments])
    assert arguments[0] in capsys.readouterr().err


def test_gated_jobs_get_everything_from_their_environment(tmp_path: Path) -> None:
    plan = Plan(
        data=tmp_path, directory=tmp_path, scale=1.0, jobs=4, cores=2, queries=(1,), memory_bytes=2**30, ordering="",
        timeout_s=60.0, settings=("network=False",),
    )  # fmt: skip
    made = plan.environment("/run/penstock/agent.sock")
    assert made["PENSTOCK_SOCKET"] == "/run/penstock/agent.sock"
    assert made["DASK_DISTRIBUTED__WORKER__PRELOAD"] == '["penstock.engines.dask.preload"]'
    assert made["DASK_PENSTOCK__NETWORK"] == "False"
