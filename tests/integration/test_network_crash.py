"""The kernel's remains of an agent that was killed, and their repair by the next one."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
from pathlib import Path

import pytest

from agent.network import NetworkLimiter, Shape, htb_parameters
from agent.network.htb import HANDLE
from tests.network_bed import TIMEOUT_S, Bed, beds

MBIT = 125_000  # bytes per second

#: Attach each given cgroup, with its place in the list as slot, print a line and wait to be killed.
_AGENT = """
import pathlib, sys
from agent.network import NetworkLimiter, Shape
limiter = NetworkLimiter()
shape = Shape(ceil_bytes_per_s=int(sys.argv[1]), ingress_bytes_per_s=int(sys.argv[1]))
for slot, cgroup in enumerate(sys.argv[2:], start=1):
    assert limiter.attach(slot, pathlib.Path(cgroup), shape).result() == {}
print("attached", flush=True)
sys.stdin.read()
"""


bed = pytest.fixture(beds)


def agent(rate_bytes_per_s: int, *cgroups: Path, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A process that has attached the cgroups, to slots 1, 2 …"""
    command = [*prefix, sys.executable, "-c", _AGENT, str(rate_bytes_per_s), *map(str, cgroups)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], TIMEOUT_S)[0]
        assert process.stdout.readline() == "attached\n"
    except BaseException:
        kill(process)
        raise
    return process


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL, and reaped."""
    process.kill()
    process.communicate(timeout=TIMEOUT_S)


def limit(rate_bytes_per_s: int) -> Shape:
    return Shape(ceil_bytes_per_s=rate_bytes_per_s)


def test_limits_outlive_a_killed_agent_and_the_next_one_takes_them_over(bed: Bed) -> None:
    kept, stray, missing = (bed.cgroup(name) for name in ("kept", "stray", "missing"))
    rate = 10 * MBIT
    kill(agent(rate, kept, stray))
    flow = bed.send(kept)
    assert flow.share_of(rate) == pytest.approx(1.0, abs=0.04)

    with contextlib.closing(NetworkLimiter()) as limiter:
        limiter.reconcile({1: (kept, limit(2 * rate)), 7: (missing, limit(rate))}, under=kept.parent).result()
        assert bed.classes() == {HANDLE | 1, HANDLE | 7}
        assert [bed.programs(cgroup) for cgroup in (kept, missing, stray)] == [2, 2, 0]
        assert flow.share_of(2 * rate) == pytest.approx(1.0, abs=0.04)


def test_counters_and_ingress_limits_go_on_under_the_next_agent_even_in_another_slot(bed: Bed) -> None:
    first, second = bed.cgroup("first"), bed.cgroup("second")
    rate = 10 * MBIT
    kill(agent(rate, first, second))
    bed.send(second).wire_bytes_per_s(rate // 5)
    coming = bed.receive(second)
    assert coming.share_of(rate) == pytest.approx(1.0, abs=0.12)

    with contextlib.closing(NetworkLimiter()) as limiter:
        shape = Shape(ingress_bytes_per_s=rate // 2)
        limiter.reconcile({1: (second, shape), 2: (first, shape)}).result()
        counted = limiter.counters()
        assert counted[1].sent_bytes >= rate // 5 and counted[1].received_bytes >= rate
        assert counted[2].sent_bytes == counted[2].received_bytes == 0
        assert coming.share_of(rate // 2) == pytest.approx(1.0, abs=0.12)


def test_of_an_agent_that_was_killed_and_owned_nothing_any_more_nothing_is_left(bed: Bed) -> None:
    cgroup = bed.cgroup("c")
    kill(agent(5 * MBIT, cgroup))
    cgroup.rmdir()
    assert bed.classes() == {HANDLE | 1}

    with contextlib.closing(NetworkLimiter()) as limiter:
        assert limiter.reconcile({}).result() != []
        assert bed.qdiscs() == [] and bed.classes() == set()
        assert limiter.reconcile({}).result() == []


def test_a_link_that_is_no_longer_to_be_limited_is_freed_of_our_root(bed: Bed) -> None:
    kill(agent(5 * MBIT, bed.cgroup("c")))

    bed.lead_nowhere()
    with contextlib.closing(NetworkLimiter()) as limiter:
        limiter.reconcile({1: (bed.cgroup("c"), limit(5 * MBIT))}).result()
        assert bed.qdiscs() == []


def test_uninstalling_after_a_crash_leaves_nothing(bed: Bed) -> None:
    cgroup = bed.cgroup("c")
    kill(agent(5 * MBIT, cgroup))

    with contextlib.closing(NetworkLimiter()) as limiter:
        limiter.reconcile({}, under=cgroup.parent).result()
        assert bed.qdiscs() == [] and bed.classes() == set()
        assert bed.programs(cgroup) == 0


def test_a_tree_for_another_rate_of_the_link_is_built_anew(bed: Bed) -> None:
    cgroup = bed.cgroup("c")
    kill(agent(5 * MBIT, cgroup))

    with contextlib.closing(NetworkLimiter(link_bytes_per_s=100 * MBIT)) as limiter:
        assert any("class 1 on" in each for each in limiter.reconcile({1: (cgroup, limit(5 * MBIT))}).result())
        assert bed.parents()[HANDLE | 1] == HANDLE | htb_parameters.LINK
        assert bed.send(cgroup).share_of(5 * MBIT) == pytest.approx(1.0, abs=0.04)


def test_without_the_right_to_open_programs_by_id_the_last_one_attached_decides(bed: Bed) -> None:
    cgroup, other = bed.cgroup("c"), bed.cgroup("other")
    weak = ("setpriv", "--bounding-set", "-sys_admin")
    for cgroups in ((cgroup, other), (other, cgroup)):
        kill(agent(10 * MBIT, *cgroups, prefix=weak))

    bed.send(cgroup).wire_bytes_per_s(1 * MBIT)

    assert bed.programs(cgroup) == 4
    with contextlib.closing(NetworkLimiter()) as limiter:
        limiter.reconcile({2: (cgroup, limit(10 * MBIT))}).result()
        counted = limiter.counters()
        assert set(counted) == {2} and counted[2].sent_bytes > 1 * MBIT
        assert bed.programs(cgroup) == 2
        limiter.detach(2, cgroup).result()
        assert bed.programs(cgroup) == 0
