"""Nice values of a session's processes, on processes of the test's own."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.core.instructions import Renice
from agent.nice import NiceValues, carry_out, renice, renice_tree, tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root lowers nice values")
OWN = os.getpriority(os.PRIO_PROCESS, 0)
_CHILDREN = """
import subprocess, sys, threading
for _ in range(2): threading.Thread(target=threading.Event().wait, daemon=True).start()
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A process of three threads that leads a session, and its child."""
    leader = subprocess.Popen(
        [sys.executable, "-c", _CHILDREN], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    yield leader.pid, child
    os.killpg(leader.pid, 9)
    leader.wait()


def nice_of(*pids: int) -> list[int]:
    """Of all their threads."""
    threads = [int(thread.name) for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
    return [os.getpriority(os.PRIO_PROCESS, thread) for thread in threads]


def nice_of_session(leader: int) -> str:
    """Return the nice value of a session as a whole; skip where the kernel has none."""
    said = Path(f"/proc/{leader}/autogroup")
    if not said.exists() or not said.read_text():
        pytest.skip("this kernel does not group processes by session")
    return said.read_text().split()[-1]


def test_all_of_a_session_and_no_other(family: tuple[int, int]) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    for nice in (12, 19, 0):
        assert renice(family[0], nice) == ""
        assert nice_of(*family) == [nice] * 4, "each thread has a nice value of its own"
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_the_session_is_weighed_where_the_kernel_weighs_sessions(family: tuple[int, int]) -> None:
    nice_of_session(family[0])  # or skip
    renice(family[0], 12)
    assert nice_of_session(family[0]) == "12"


def test_a_process_that_leads_no_session_is_left_alone(family: tuple[int, int]) -> None:
    assert "leads no session" in renice(family[1], 12)
    assert nice_of(*family) == [OWN] * 4


@pytest.mark.parametrize("lower", [renice, renice_tree], ids=["session", "tree"])
def test_one_that_has_ended_is_no_error(lower: Callable[[int, int], str]) -> None:
    ended = subprocess.Popen(["true"], start_new_session=True)
    ended.wait()
    assert lower(ended.pid, 5) == ""


def test_all_descendants_of_a_process_but_those_apart(family: tuple[int, int]) -> None:
    leader, child = family
    for nice in (12, 19, 0):
        assert renice_tree(leader, nice) == ""
        assert nice_of(leader, child) == [nice] * 4
    assert renice_tree(leader, 12, apart={child}) == ""
    assert (nice_of(leader), nice_of(child)) == ([12] * 3, [0])
    assert os.getpriority(os.PRIO_PROCESS, 0) == OWN


def test_the_agent_that_a_process_has_started_is_apart(family: tuple[int, int]) -> None:
    leader, _ = family
    assert leader not in tree(os.getppid()) and os.getpid() not in tree(os.getppid())


def test_a_session_is_weighed_if_all_of_it_descends_from_the_process(family: tuple[int, int]) -> None:
    leader, child = family
    before = nice_of_session(leader)
    assert renice_tree(child, 12) == ""
    assert nice_of_session(leader) == before, "the leader is not among them"
    assert (nice_of(leader), nice_of(child)) == ([OWN] * 3, [12])
    assert renice_tree(leader, 12) == ""
    assert nice_of_session(leader) == "12"


@pytest.mark.parametrize("adopted", [False, True])
def test_opportunistic_work_is_idle_until_it_is_promoted(family: tuple[int, int], adopted: bool) -> None:
    threads = [int(thread.name) for pid in family for thread in Path(f"/proc/{pid}/task").iterdir()]
    for opportunistic, policy in ((True, os.SCHED_IDLE), (None, os.SCHED_IDLE), (False, os.SCHED_OTHER)):
        assert carry_out(Renice("c", family[0], 3, adopted, opportunistic=opportunistic)) == ""
        assert {os.sched_getscheduler(thread) for thread in threads} == {policy}
        assert nice_of(*family) == [3] * 4


def test_only_processes_among_those_named_are_given_a_value(family: tuple[int, int]) -> None:
    leader, child = family
    assert renice(leader, 12, among=lambda: [leader, os.getpid()]) == ""
    assert (nice_of(leader), nice_of(child)) == ([12] * 3, [OWN])
    assert os.getpriority(os.PRIO_PROCESS, 0) == OWN, "this process is in another session"


def test_threads_are_listed_only_of_a_process_that_has_several(
    family: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, listdir = list[str](), os.listdir

    def noted(path: str) -> list[str]:
        listed.append(path)
        return listdir(path)

    leader, child = family
    monkeypatch.setattr("agent.nice.os.listdir", noted)
    assert renice(leader, 12, among=lambda: [leader, child]) == ""
    monkeypatch.undo()
    assert nice_of(*family) == [12] * 4
    assert listed == [f"/proc/{leader}/task"]


def test_where_a_cgroup_does_not_list_its_processes_those_of_the_host_are_looked_at(family: tuple[int, int]) -> None:
    def threaded() -> list[int]:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    leader, _ = family
    assert renice(leader, 12, among=threaded) == ""
    assert os.getpriority(os.PRIO_PROCESS, leader) == 12


def test_processes_are_listed_only_for_another_nice_value(family: tuple[int, int]) -> None:
    """Most containers are alone, and go first: they keep the nice value that they were started with."""
    looks: list[None] = []

    def among() -> list[int]:
        looks.append(None)
        return [*family]

    os.setpriority(os.PRIO_PROCESS, family[0], 0)
    values, renices = NiceValues(), [Renice("c", family[0], nice) for nice in (0, 0, 7, 0)]
    values.started("c", family[0])
    counts = []
    for rank in renices:
        assert values.give(rank, among) == ""
        counts.append(len(looks))
    assert counts == [0, 0, 1, 2]
    assert nice_of(*family) == [0] * 4
    assert values.give(Renice("of an earlier agent", family[0], 0), among) == ""
    assert len(looks) == 3
    over = subprocess.Popen(["true"])
    over.wait()
    values.started("a short one", over.pid)
    assert values.give(Renice("a short one", over.pid, 0), among) == ""
    assert len(looks) == 3
