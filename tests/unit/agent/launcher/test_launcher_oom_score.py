"""The kernel's own OOM killer gets the score of a container that runs already."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.launcher.oom import set_oom_score_adj

TIMEOUT_S = 30


@pytest.fixture
def sleepers(cgroup: Path) -> Iterator[list[int]]:
    """One in it, one in the cgroup below, one outside."""
    (cgroup / "below").mkdir()
    made = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
    (cgroup / "cgroup.procs").write_text(str(made[0].pid))
    (cgroup / "below/cgroup.procs").write_text(str(made[1].pid))
    yield [process.pid for process in made]
    for process in made:
        process.kill()
        process.wait(TIMEOUT_S)


def scores(pids: list[int]) -> list[int]:
    return [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in pids]


def test_all_of_it_and_nothing_else(cgroup: Path, sleepers: list[int]) -> None:
    own = scores(sleepers)[2]
    set_oom_score_adj(cgroup, 1000)
    assert scores(sleepers) == [1000, 1000, own]


@pytest.mark.skipif(os.geteuid() != 0, reason="only CAP_SYS_RESOURCE can lower a score")
def test_it_is_taken_back(cgroup: Path, sleepers: list[int]) -> None:
    own = scores(sleepers)[2]
    set_oom_score_adj(cgroup, 1000)
    set_oom_score_adj(cgroup, 0)
    assert scores(sleepers) == [0, 0, own]


def test_a_cgroup_that_vanished(cgroup: Path) -> None:
    set_oom_score_adj(cgroup / "gone", 1000)
