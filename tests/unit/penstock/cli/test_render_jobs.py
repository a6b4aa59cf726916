"""Jobs for people: the table, one in detail, and the explanation, with names that would like to steer a terminal."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType

from penstock.cli.bars import Bars
from penstock.cli.render_jobs import details, explanation, table
from penstock.cli.report import Report
from penstock.model.container import Ended, EndedBy
from penstock.model.resources import KindAmounts
from penstock.opgraph import JobManager, Started, TaskEnded, TaskGraph, TaskNode, TaskPlaced, TaskSettled
from penstock.wire.jobs_api import MOST_NODES, JobView, NodeRank, StageView, TaskFailure
from tests.unit.penstock.cli.conftest import Fails

GOING = JobView(
    job="a-1", name="words\x1b[2J", user="eve", origin="alpha", state="running", submitted_at=1000.0, stages=2,
    stages_done=1, tasks_waiting=1, tasks_ready=3, tasks_running=2, tasks_done=8, slots=2, service_container_s=7.25,
    left=KindAmounts(cpu=3 << 20), nodes=["alpha", "beta"], rank=2, of=3, reason="7.2 s of service so far",
    ranks=[NodeRank(node="alpha", rank=3, of=4, weight=12, service_container_s=4.0, before=["a-2", "c-1-1"])],
    progress=[StageView(stage="map", tasks=8, done=8), StageView(stage="reduce", tasks=6, done=0, after=["map"])],
)  # fmt: skip
OVER = msgspec.structs.replace(
    GOING, job="a-0", state="ended", rank=0, of=0, reason="", ranks=[], outcome="failed", tasks_failed=1,
    why="1 task failed; first t: exit status 3", ended_at=1030.0,
    failures=[TaskFailure(task="t", stage="map", node="beta", by="exit", exit_status=3, reason="")],
)  # fmt: skip


def shown(*parts: RenderableType, width: int = 160) -> list[str]:
    """Return the lines as they are without a terminal."""
    file = io.StringIO()
    console = Console(file=file, width=width)
    for part in parts:
        console.print(part)
    assert "\x1b" not in file.getvalue()
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_running_jobs_come_first_then_ended_ones_the_latest_first() -> None:
    earlier = msgspec.structs.replace(OVER, job="a-9", ended_at=1010.0, outcome="succeeded", why="")
    head, *rows = shown(table([earlier, OVER, GOING], 1090.0, users=True))
    assert " ".join(head.split()) == "job name user state rank service stages ready running done left since why"
    assert [row.split()[0] for row in rows] == ["a-1", "a-0", "a-9"]
    cells = "a-1 words�[2J eve running 2/3 7.2s 1/2 3 2 8 3 MiB cpu 1m30s"
    assert rows[0].split() == cells.split()
    assert rows[1].split()[3:10] == ["failed", "7.2s", "1/2", "3", "2", "8", "1m00s"], (
        "what is left of it nobody will do"
    )
    assert rows[1].endswith("1 task failed; first t: exit status 3")
    assert "succeeded" in rows[2]


def test_on_a_narrow_terminal_the_least_important_column_goes_first() -> None:
    [head, row] = shown(table([GOING], 1090.0, users=False), width=40)
    assert (head.split()[0], row.split()[0]) == ("job", "a-1")
    assert "state" in head
    assert len(row) <= 40
    [head, row] = shown(table([GOING], 1090.0, users=False), width=80)
    assert ("rank" in head, "service" in head, "2/3" in row, "7.2s" in row) == (True,) * 4
    assert len(row) <= 80


def test_one_job_in_detail() -> None:
    lines = shown(*details(OVER, 1090.0))
    assert lines[0] == "a-0  words�[2J of eve: failed, ended 1m00s ago"
    assert lines[1] == "  1 task failed; first t: exit status 3"
    assert "  tasks: 1 waiting, 3 ready, 2 running, 8 done, 1 of them failed" in lines
    assert "  on alpha, beta; registered on alpha" in lines
    assert ["reduce", "6", "0", "map"] in [line.split() for line in lines]
    assert lines[-1] == "  t failed on beta: exit status 3"
    over = msgspec.structs.replace(OVER, nodes=[], ran_on=["beta", "gamma"])
    assert "  ran on beta, gamma; registered on alpha" in shown(*details(over, 1090.0))
    cut = msgspec.structs.replace(over, ran_on=[f"n{n:03}" for n in range(MOST_NODES)])
    assert any("n099 and perhaps more; registered on alpha" in line for line in shown(*details(cut, 1090.0), width=900))
    assert "  service: 7.2s" in lines and not any("rank" in line for line in lines)
    going = shown(*details(GOING, 1090.0))
    assert "submitted 1m30s ago" in going[0]
    assert "  tasks: 1 waiting, 3 ready, 2 running, 8 done" in going
    assert "  rank 2 of 3: 7.2 s of service so far" in going
    assert "  on alpha: rank 3 of 4, weight 12, 4.0s of service there" in going
    assert "  service: 7.2s so far; holds 2 slots" in going


def test_skipped_tasks_are_not_done_ones() -> None:
    stages = [
        StageView(stage="map", tasks=8, done=8, skipped=3),
        StageView(stage="reduce", tasks=6, done=0, after=["map"]),
    ]
    job = msgspec.structs.replace(OVER, tasks_skipped=3, progress=stages)
    head, row = shown(table([job], 1090.0, users=False))
    assert [head[: head.index(name) + len(name)].split()[-1] for name in ("done", "skipped")] == ["done", "skipped"]
    assert (row[: head.index("done") + 4].split()[-1], row[: head.index("skipped") + 7].split()[-1]) == ("5", "3")
    assert "skipped" not in shown(table([OVER], 1090.0, users=False))[0]
    lines = shown(*details(job, 1090.0))
    assert "  tasks: 1 waiting, 3 ready, 2 running, 5 done, 1 of them failed, 3 skipped" in lines
    assert ["map", "8", "5", "3"] in [line.split() for line in lines]
    assert ["reduce", "6", "0", "map"] in [line.split() for line in lines]


SAID: dict[str, Any] = {
    "job": "a-1", "name": "words", "ordering": "ejf", "placement": "ursa", "place": 2, "of": 3, "before_it": ["a-0"],
    "sentence": "second of 3 by ejf: it came later.", "why": "ejf: W·T 3",
    "containers": 4, "room_containers": 6.0, "admitted": True, "waits": "2 tasks wait for a node",
    "stages": [{"stage": "map", "ready": 2, "waits": "task t: memory on 2 nodes"}], "ended": None, "cancelled_by": "",
    "placed": {"alpha": 3, "beta": 1},
    "last_placed": [
        {"task": "t1", "node": "alpha", "opportunistic": False, "why": "ursa: F = 1"},
        {"task": "t2", "node": "beta", "opportunistic": True, "why": ""},
    ],
}  # fmt: skip


def test_why_a_job_waits_and_where_it_is() -> None:
    lines = [str(line) for line in explanation(SAID)]
    assert lines == [
        "a-1 words",
        "  second of 3 by ejf: it came later.",
        "  waits: 2 tasks wait for a node",
        "  holds 4 containers, and may hold 6",
        "  stage map: 2 ready; task t: memory on 2 nodes",
        "  placed (ursa): 3 on alpha, 1 on beta",
        "    t1 → alpha: ursa: F = 1",
        "    t2 → beta, on slack: before a restart",
    ]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"admitted": False, "waits": "it wants 2 GiB"}, "  not admitted: it wants 2 GiB"),
        ({"admitted": False, "waits": ""}, "  not admitted: not looked at before the next round"),
        ({"room_containers": None}, "  holds 4 containers"),
        (
            {"ranks": [{"node": "a", "rank": 2, "of": 4, "weight": 12, "service_container_s": 61.0, "before": ["x"]}]},
            "  on a: rank 2 of 4, weight 12, 1m01s of service there",
        ),
        ({"cancelled_by": "ann"}, "  cancelled by ann; its host has not confirmed it yet"),
        ({"ended": {"outcome": "lost", "why": "node a"}}, "a-1 words has ended, lost: node a"),
        ({"ended": {"outcome": "succeeded", "why": ""}}, "a-1 words has ended, succeeded"),
    ],
)
def test_other_things_that_are_explained(more: dict[str, Any], line: str) -> None:
    assert line in [str(each) for each in explanation(SAID | more)]


# ---------------------------------------------------------------- progress of submit


def manager() -> JobManager:
    nodes = [TaskNode(f"m{i}", "map", (), 0) for i in range(3)] + [TaskNode("r", "reduce", ("m0", "m1", "m2"), 0)]
    return JobManager(TaskGraph(nodes))


def bars_of(bars: Bars) -> list[tuple[str, float, float | None, str]]:
    """Each one's name, how many tasks have ended, of how many, and its text."""
    return [(task.description.strip(), task.completed, task.total, task.fields["now"]) for task in bars._progress.tasks]


def test_a_bar_for_each_stage_that_is_under_way_and_one_for_the_job() -> None:
    job = manager()
    bars = Bars("words", job, Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None))
    bars.show()
    assert bars_of(bars) == [("words", 0, 4, "")]
    job.handle(Started())
    for name in ("m0", "m1", "m2"):
        job.handle(TaskPlaced(name, "alpha"))
    job.handle(TaskEnded("m0", Ended(by=EndedBy.EXIT, exit_status=0)))
    bars.show()
    assert bars_of(bars) == [("words", 1, 4, ""), ("map", 1, 3, "2 placed")]
    for name in ("m1", "m2"):
        job.handle(TaskEnded(name, Ended(by=EndedBy.EXIT, exit_status=0)))
    job.handle(TaskPlaced("r", "beta"))
    bars.show()
    assert bars_of(bars) == [("words", 3, 4, ""), ("reduce", 0, 1, "1 placed")], "the stage that is over has none"


def test_names_are_shown_as_they_are() -> None:
    job = JobManager(TaskGraph([TaskNode("a", "part[/1]", (), 0), TaskNode("b", "part[/1]", (), 0)]))
    shown = io.StringIO()
    bars = Bars("words[red]", job, Console(file=shown, force_terminal=True, width=100, color_system=None))
    job.handle(Started())
    job.handle(TaskPlaced("a", "alpha"))
    bars.show()
    bars.start()
    bars.stop()
    assert "words[red]" in shown.getvalue() and "part[/1]" in shown.getvalue()


def test_quiet_prints_only_errors(capsys: pytest.CaptureFixture[str]) -> None:
    job = manager()
    job.handle(Started())
    with Report("words", job, quiet=True) as report:
        report.begins("a-1")
        report.show()

        def ended(task: str, status: int) -> str:
            for settled in job.handle(TaskEnded(task, Ended(by=EndedBy.EXIT, exit_status=status))):
                assert isinstance(settled, TaskSettled)
                report.settled(settled)
            return capsys.readouterr().err

        assert ended("m0", 0) == ""
        assert ended("m1", 3) == "penstock submit: m1 failed: exit status 3 (3 of 4)\n"
        report.say("cancelled by ann")
    assert capsys.readouterr().err == "penstock submit: cancelled by ann\n"


def test_only_the_first_failed_tasks_have_a_line_above_the_bars() -> None:
    """Each line draws all bars anew; the table at the end has all tasks."""
    job = JobManager(TaskGraph([TaskNode(f"t{number}", "map", (), number) for number in range(30)]))
    shown = io.StringIO()
    report = Report("words", job)
    report._bars = Bars("words", job, Console(file=shown, force_terminal=True, width=100, color_system=None))
    job.handle(Started())
    for number in range(30):
        for settled in job.handle(TaskEnded(f"t{number}", Ended(by=EndedBy.EXIT, exit_status=3))):
            if isinstance(settled, TaskSettled):
                report.settled(settled)
    assert shown.getvalue().count("failed: exit status 3") == 20


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["jobs", "--wait"], "penstock jobs: --wait: name the jobs to wait for"),
        (["jobs", "a-1", "--all"], "penstock jobs: --all: name jobs, or list those of all users"),
        (["jobs", "a-1", "--timeout", "1s"], "penstock jobs: --timeout: only with --wait"),
        (["jobs", "a-1", "--wait", "--timeout", "soon"], "penstock jobs: --timeout: 'soon'"),
        (["jobs", "--wiat"], "penstock jobs: unknown argument '--wiat'; did you mean '--wait'?"),
        (["cancel"], "penstock cancel: the following arguments are required: JOB"),
        (["explain"], "penstock explain: the following arguments are required: JOB"),
        (["submit", "--detach", "/nowhere/j.toml"], "penstock submit: /nowhere/j.toml: No such file or directory"),
    ],
)
def test_bad_input_is_one_line(argv: list[str], said: str, fails: Fails) -> None:
    assert fails(2, *argv).startswith(said)


def test_the_output_of_submit_for_a_script_needs_no_library_for_terminals() -> None:
    code = """if True:
        import sys
        from penstock.cli import submission
        from penstock.model.container import Ended, EndedBy
        from penstock.opgraph import JobManager, Started, TaskEnded, TaskGraph, TaskNode
        job = JobManager(TaskGraph([TaskNode("m\\x1b[2J", "map", (), 0)]))
        with submission.Report("words", job) as report:
            report.begins("a-1")
            job.handle(Started())
            settled, over = job.handle(TaskEnded("m\\x1b[2J", Ended(by=EndedBy.EXIT, exit_status=0, wall_seconds=1.25)))
            report.settled(settled)
        submission.print_table(job, {"m\\x1b[2J": "its last line"})
        print(*sorted({"rich", "json"} & set(sys.modules)))
        """
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True, timeout=60)
    header, row, modules = done.stdout.splitlines()
    assert modules == ""
    assert header.split() == ["task", "stage", "node", "seconds", "exit", "state", "reason"]
    assert row.split() == ["m�[2J", "map", "1.25", "0", "done"]
    assert header.index("exit") + 4 == row.index(" 0 ") + 2, "numbers stand at the right of their column"
    assert done.stderr.splitlines() == [
        "penstock submit: words is job a-1",
        "penstock submit: m�[2J done in 1.2s (1 of 1)",
        "--- m�[2J",
        "its last line",
    ]
