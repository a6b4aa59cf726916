"""The benchmark of Spark in the virtual machine, as far as it needs neither: inputs, arrivals, tables, and the steps to
run.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest

from bench.spark_vm import command, data, report
from bench.spark_vm.applications import APPLICATIONS
from bench.spark_vm.mix import arrivals
from bench.spark_vm.records import Executed, Part, Sample, Side, Submitted


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark changes the process that it has to itself."""
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)


def _run(application: str, number: int, arrived_s: float, ended_s: float, answer: str = "3 lines abc") -> Submitted:
    return Submitted(application=application, number=number, arrived_s=arrived_s, ended_s=ended_s, answer=answer)


def _sample(at_s: float, cores: float, running: int = 1) -> Sample:
    return Sample(
        at_s=at_s, cpu_cores=cores + 0.25, memory_bytes=1 << 30, disk_busy=0.5, disk_bytes_per_s=4e6, running=running,
        executors_cpu_cores=cores, executors_memory_bytes=64 << 20, executors_disk_bytes_per_s=3e6, promised_cores=2.0,
    )  # fmt: skip


def _executed(application: str, began_s: float, ended_s: float) -> Executed:
    return Executed(
        application=application, run=f"{application}-{began_s}", began_s=began_s, ended_s=ended_s, cpu_seconds=30.0,
        memory_peak_bytes=256 << 20, slots=10, reprovisioned=1, ended_by="exit 0",
    )  # fmt: skip


def _part(side: str, runs: list[Submitted], samples: list[Sample] | None = None, seed: int = 1) -> Part:
    executors = [_executed(run.application, run.arrived_s + 5, run.ended_s) for run in runs]
    return Part(
        side=Side.read(side), seed=seed,
        cores=2.0, memory_bytes=4 << 30, disk_bytes_per_s=10_000_000, kernel="6.1",
        runs=runs, samples=samples or [_sample(10, 1.0)], executors=executors,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [data.records, data.text, data.points, data.links])
def test_inputs_are_the_same_each_time(kind: data.Kind) -> None:
    lines = list(kind(50))
    assert lines == list(kind(50))
    assert len(set(lines)) > 40
    assert all(line.endswith("\n") and line.isascii() for line in lines)
    assert kind is not data.records or {len(line) for line in lines} == {1000}


def test_every_application_arrives_as_often_at_random_and_the_same_for_a_seed() -> None:
    mix = arrivals(list(APPLICATIONS), each=3, interval_s=20, seed=7)
    assert mix == arrivals(list(APPLICATIONS), each=3, interval_s=20, seed=7)
    assert mix != arrivals(list(APPLICATIONS), each=3, interval_s=20, seed=8)
    assert {(each.application, each.number) for each in mix} == {(name, n) for name in APPLICATIONS for n in range(3)}
    assert len(mix) == 12
    assert mix[0].at_s == 0
    assert all(before.at_s < after.at_s for before, after in pairwise(mix))


def test_arrivals_come_at_the_mean_interval() -> None:
    mix = arrivals(["a"], each=2_000, interval_s=20, seed=1)
    assert fmean(after.at_s - before.at_s for before, after in pairwise(mix)) == pytest.approx(20, rel=0.1)


def test_a_makespan_is_from_the_first_arrival_to_the_last_end() -> None:
    part = _part("static", [_run("sort", 0, 3, 50), _run("sort", 1, 20, 143)])
    assert report.makespan_s(part) == 140


def test_less_makespan_is_printed_with_its_sign() -> None:
    static = _part("static", [_run("sort", 0, 0, 200)])
    assert "+36.0 % less with minfrag than with static" in report.against(
        _part("minfrag", [_run("sort", 0, 0, 128)]), static
    )
    assert "-10.0 % less" in report.against(_part("minfrag", [_run("sort", 0, 0, 220)]), static)


def test_means_are_of_the_time_in_which_there_was_work() -> None:
    samples = [_sample(1, 9.0), _sample(10, 1.0), _sample(20, 2.0), _sample(90, 9.0)]
    table = report.compared([_part("static", [_run("sort", 0, 5, 60)], samples)])
    assert "| cores used by executors, mean | 1.50 |" in table
    assert "| makespan (s) | 55 |" in table
    assert "| CPU time of all executors (s) | 30 |" in table
    assert "| CPU time of the host (s) | 96 |" in table  # 1.75 cores on the average
    assert "| corrected (reprovisioned), times | 1 |" in table


@pytest.mark.parametrize("text", ["static", "minfrag:mean", "minfrag:mean:shared", "minfrag:peak:shared"])
def test_a_side_is_printed_as_it_is_read(text: str) -> None:
    assert str(Side.read(text)) == text


def test_a_side_leaves_out_the_defaults() -> None:
    assert str(Side("minfrag", "peak", "hard")) == "minfrag"
    assert str(Side("minfrag", "mean", "hard")) == "minfrag:mean"
    assert Side.read("minfrag") == Side("minfrag", "peak", "hard")


def test_an_application_alone_is_described_by_its_own_samples() -> None:
    runs = [_run("sort", 0, 0, 40), _run("k-means", 0, 50, 90)]
    table = report.learnt(_part("learn", runs, [_sample(20, 0.5), _sample(47, 7.0, running=0), _sample(70, 2.0)]))
    assert "| sort | 40 | 35 | 30 | 0.50 | 0.50 | 256 | 3.0 | 3.0 |" in table
    assert "| k-means | 40 | 35 | 30 | 2.00 | 2.00 |" in table


def test_other_answers_and_failures_are_found() -> None:
    same = _part("static", [_run("sort", 0, 0, 9), _run("k-means", 0, 0, 9, "16 centres 1f")])
    assert report.differing([same, same]) == {}
    other = _part("minfrag", [_run("sort", 0, 0, 9, "3 lines abd")])
    assert report.differing([same, other]) == {"sort": {"3 lines abc", "3 lines abd"}}
    failed = Submitted(application="k-means", number=0, arrived_s=0, ended_s=9, failure="ended")
    assert "k-means" in report.differing([_part("minfrag", [failed])])


def test_an_existing_measurement_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[tuple[str, int]] = []

    def measure(out: Path, side: Side, seed: int, options: object) -> int:
        measured.append((str(side), seed))
        _part(str(side), [_run("sort", 0, 0, {"static": 100, "minfrag": 60}.get(side.policy, 30))], seed=seed).write(
            out / f"{str(side).replace(':', '-')}-{seed}.json"
        )
        return 0

    monkeypatch.setattr(command, "_measure", measure)
    arguments = ["--out", str(tmp_path), "--seeds", "4,5", "--sides", "static,minfrag:mean"]
    assert command.main(arguments) == 0
    assert measured == [("learn", 0), ("static", 4), ("minfrag:mean", 4), ("static", 5), ("minfrag:mean", 5)]
    assert "seed 5: makespan +40.0 % less" in capsys.readouterr().out
    (tmp_path / "static-4.json").unlink()
    (tmp_path / "minfrag-mean-5.json").unlink()
    measured.clear()
    assert command.main([*arguments, "--one"]) == 0
    assert measured == [("static", 4)]
    assert command.main(arguments) == 0
    assert measured == [("static", 4), ("minfrag:mean", 5)]


def test_a_part_that_fails_ends_the_benchmark_and_leaves_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_measure", lambda *_: 3)
    assert command.main(["--out", str(tmp_path)]) == 3
    assert list(tmp_path.iterdir()) == []


def test_answers_that_differ_are_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for policy, seed, answer in (("learn", 0, "a"), ("minfrag", 1, "a"), ("static", 1, "b")):
        _part(policy, [_run("sort", 0, 0, 9, answer)], seed=seed).write(tmp_path / f"{policy}-{seed}.json")
    assert command.main(["--out", str(tmp_path), "--report"]) == 1
    assert "sort: NOT THE SAME EACH TIME: a, b" in capsys.readouterr().out
