"""The figures by hand, and the comparison of outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo import report
from demo.picture import main as draw_main
from demo.picture import running
from demo.plan import Plan
from demo.records import EXECUTORS, JobResult, Work
from demo.run import Archive, JobRun, Run
from penstock.model.container import Ended, EndedBy

PLAN = Plan.of(Path("/d"), Path("/p"), 10_000_000, 3.0)


def job(name: str, ended: float, cpu_seconds: float, works: list[Work]) -> JobRun:
    return JobRun(name, 100.0, ended, cpu_seconds, 1000, {}, JobResult(name, 100.5, ended - 0.5, cpu_seconds, works))


def run(executor: str) -> Run:
    works = [
        Work("disk", "map", "map-0", 100.5, 100.6, 101.6, 10, 0.05),
        Work("cpu", "map", "map-0", 101.6, 102.0, 104.0, 10, 1.9),
    ]
    jobs = [
        job("word-count", 105.0, 2.5, works),
        job("inverted-index", 107.0, 2.5, works),
        job("sort", 109.0, 3.0, works),
    ]
    sample = {
        "at": 101.0,
        "kinds": {kind: {"running": 1, "slots": 2} for kind in report.KINDS},
        "host": {"cpu_percent": 50.0},
        "memory": {"capacity_bytes": 10**9},
        "containers": {"sort": 10**8, "archive": 2 * 10**8},
    }
    return Run(executor, 100.0, 110.0, jobs, 0.0003, samples=[sample, {**sample, "at": 103.0}])


def test_the_figures_of_a_run() -> None:
    figures = report.figures(run("static"), PLAN)
    assert figures.makespan_s == 10
    assert figures.mean_completion_s == pytest.approx(7)
    assert (figures.used, figures.there_was) == (8, 30)
    assert figures.utilization == pytest.approx(8 / 30)


def test_differences_name_the_files(tmp_path: Path) -> None:
    for executor, text in (("one", b"a"), ("two", b"b")):
        for name in ("sort", "word-count"):
            directory = tmp_path / executor / name
            directory.mkdir(parents=True)
            (directory / "part-0000").write_bytes(b"same")
            (directory / "part-0001").write_bytes(text if name == "sort" else b"same")
    (tmp_path / "two/sort/part-0002").write_bytes(b"")
    first, second = (report.digests([tmp_path / e / "sort", tmp_path / e / "word-count"]) for e in ("one", "two"))
    assert len(first) == 4
    assert report.differences(first, first) == []
    assert report.differences(first, second) == ["sort/part-0001: different bytes", "sort/part-0002: only in one run"]


def test_the_report_has_everything_and_is_json() -> None:
    runs = {name: run(name) for name in EXECUTORS}
    runs["penstock"].archive = Archive(123, 456, Ended(by=EndedBy.PREEMPTED, reason="memory: wanted"))
    runs["penstock"].preemptions = [{"container": "c-1", "resource": "memory", "reason": "memory: wanted", "at": 1.0}]
    document = json.loads(json.dumps(report.document(runs, PLAN, {"enforced": []})))
    assert document["runs"]["penstock"]["figures"]["utilization"] == pytest.approx(8 / 30)
    assert document["runs"]["penstock"]["archive"]["ended"]["by"] == "preempted"
    assert document["runs"]["static"]["jobs"][0]["result"]["works"]
    lines = report.preemption_lines(runs["penstock"])
    assert "c-1" in lines[0]
    assert "memory: wanted" in lines[0]
    own = {name: {"agent": 0.25 * index, "master": 0.5} for index, name in enumerate(runs)}
    shown = "\n".join(report.table(runs, PLAN, own))
    assert "plain Linux        static  Penstock 1st      Penstock  with archive" in shown
    (own_s,) = (line for line in shown.splitlines() if "of Penstock itself" in line)
    of_its_own = ["0.75", "s", "1.00", "s", "1.25", "s", "1.50", "s"]
    assert own_s.split("itself")[1].split() == of_its_own, "none beside plain Linux"
    assert "inverted-index" in shown
    assert "10.00 s" in shown


def test_how_many_ran_when() -> None:
    works = [{"began": 1.0, "ended": 3.0}, {"began": 2.0, "ended": 3.0}, {"began": 3.0, "ended": 4.0}]
    assert running(works) == ([0.0, 1.0, 2.0, 3.0, 4.0], [0, 1, 2, 1, 0])


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    timeline = report.timeline({"static": run("static"), "penstock": run("penstock")})
    (tmp_path / "timeline.json").write_text(json.dumps(timeline))
    assert draw_main([str(tmp_path / "timeline.json"), str(tmp_path / "timeline.png")]) == 0
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_a_timeline_that_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert draw_main([str(tmp_path / "none.json"), "x.png"]) == 2
    assert draw_main([]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
