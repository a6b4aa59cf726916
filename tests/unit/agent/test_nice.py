"""Nice values of a session's processes, on processes of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.nice import renice

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root lowers nice values")
_CHILDREN = """
import subprocess, sys
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A process that leads a session, and its child."""
    leader = subprocess.Popen(
        [sys.executable, "-c", _CHILDREN], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    yield leader.pid, child
    os.killpg(leader.pid, 9)
    leader.wait()


def test_all_of_a_session_and_nobody_else(family: tuple[int, int]) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    for nice in (12, 19, 0):
        assert renice(family[0], nice) == ""
        assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in family] == [nice, nice]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_the_session_is_weighed_where_the_kernel_weighs_sessions(family: tuple[int, int]) -> None:
    said = Path(f"/proc/{family[0]}/autogroup")
    if not said.exists() or not said.read_text():
        pytest.skip("this kernel does not group processes by session")
    renice(family[0], 12)
    assert said.read_text().split()[-1] == "12"


def test_a_process_that_leads_no_session_is_left_alone(family: tuple[int, int]) -> None:
    assert "leads no session" in renice(family[1], 12)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in family] == [own, own]


def test_a_session_that_has_ended_is_no_error() -> None:
    ended = subprocess.Popen(["true"], start_new_session=True)
    ended.wait()
    assert renice(ended.pid, 5) == ""
