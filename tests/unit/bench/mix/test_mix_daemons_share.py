"""The daemons' part of all cores: jobs arrive as planned, and what they take is held against all cores."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.mix import daemons_share
from bench.mix.jobs import Job
from bench.mix.plan import Plan
from demo.node import Node

_UP = Node(Path("/nowhere"), "", {})


def plan(*cpu_s: float) -> Plan:
    jobs = tuple(Job(number, "alice", "sort", "sort", True, 1.0, each, each, 0.0) for number, each in enumerate(cpu_s))
    return Plan(3, 60.0, 2.0, (), jobs, jobs[0])


def test_parts_are_of_all_cores_and_the_users_commands_are_not_the_daemons() -> None:
    text = daemons_share.report(plan(50.0, 10.0), 100.0, {"agent": 1.5, "master": 0.5}, 3.0)
    assert text.splitlines()[0] == "plan 3: 2 jobs, load 0.50, 100 s on 2 cores"
    parts = {line[:20].strip(): line[20:].split() for line in text.splitlines()[1:]}
    assert parts["the daemons"] == ["2.00", "s", "1.00", "%"]
    assert parts["penstock submit"] == ["3.00", "s", "1.50", "%"]


@pytest.mark.parametrize(("program", "fails"), [("true", False), ("false", True)])
def test_each_job_that_computes_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, fails: bool
) -> None:
    begun = []

    def submitted(job: Job, up: Node, directory: Path) -> subprocess.Popen[bytes]:
        begun.append(job.number)
        return subprocess.Popen([program])

    monkeypatch.setattr(daemons_share, "submitted", submitted)
    if fails:
        with pytest.raises(RuntimeError, match="2 jobs failed"):
            daemons_share.play(plan(1.0, 0.0, 2.0), _UP, tmp_path)
    else:
        daemons_share.play(plan(1.0, 0.0, 2.0), _UP, tmp_path)
    assert begun == [0, 2], "the hog has no CPU time in a plan"
