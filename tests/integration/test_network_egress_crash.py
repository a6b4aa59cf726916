"""What the kernel keeps of an agent that was killed, and how the next one puts it right."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.network import EgressLimiter, bpf, probe
from agent.network.htb import HANDLE
from tests.network_bed import TIMEOUT_S, UPLINK, Bed

MBIT = 125_000  # bytes per second

#: Attaches each cgroup that it is given, with its place in the list as slot, says so and waits to be killed.
_AGENT = """
import pathlib, sys
from agent.network import EgressLimiter
limiter = EgressLimiter([sys.argv[1]])
for slot, cgroup in enumerate(sys.argv[3:], start=1):
    assert limiter.attach(slot, pathlib.Path(cgroup), int(sys.argv[2])) == {}
print("attached", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def bed() -> Iterator[Bed]:
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces, BPF programs, qdiscs")
    if refusal := probe():
        pytest.skip(refusal)
    made = Bed()
    yield made
    made.close()


def agent(rate_bytes_per_s: int, *cgroups: Path, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A process that has attached the cgroups, to slots 1, 2 …"""
    command = [*prefix, sys.executable, "-c", _AGENT, UPLINK, str(rate_bytes_per_s), *map(str, cgroups)]
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


def test_limits_outlive_a_killed_agent_and_the_next_one_takes_them_over(bed: Bed) -> None:
    kept, stray, missing = (bed.cgroup(name) for name in ("kept", "stray", "missing"))
    rate = 10 * MBIT
    kill(agent(rate, kept, stray))
    flow = bed.send(kept)
    assert flow.share_of(rate) == pytest.approx(1.0, abs=0.04)

    limiter = EgressLimiter([UPLINK])
    try:
        limiter.reconcile({1: (kept, 2 * rate), 7: (missing, rate)})
        assert bed.classes() == {HANDLE | 1, HANDLE | 7}
        assert [len(bpf.attached(cgroup)) for cgroup in (kept, missing)] == [1, 1]
        assert flow.share_of(2 * rate) == pytest.approx(1.0, abs=0.04)
    finally:
        limiter.close()


def test_of_an_agent_that_was_killed_and_owned_nothing_any_more_nothing_is_left(bed: Bed) -> None:
    cgroup = bed.cgroup("c")
    kill(agent(5 * MBIT, cgroup))
    cgroup.rmdir()
    assert bed.classes() == {HANDLE | 1}

    limiter = EgressLimiter([UPLINK])
    try:
        limiter.reconcile({})
        assert bed.qdiscs() == [] and bed.classes() == set()
    finally:
        limiter.close()


def test_a_link_that_is_no_longer_to_be_limited_is_freed_of_our_root(bed: Bed) -> None:
    kill(agent(5 * MBIT, bed.cgroup("c")))

    limiter = EgressLimiter([])
    try:
        limiter.reconcile({1: (bed.cgroup("c"), 5 * MBIT)})
        assert bed.qdiscs() == []
    finally:
        limiter.close()


def test_without_the_right_to_open_programs_by_id_the_last_one_attached_decides(bed: Bed) -> None:
    cgroup, other = bed.cgroup("c"), bed.cgroup("other")
    weak = ("setpriv", "--bounding-set", "-sys_admin")
    for cgroups in ((cgroup, other), (other, cgroup)):
        kill(agent(10 * MBIT, *cgroups, prefix=weak))

    bed.send(cgroup).wire_bytes_per_s(1 * MBIT)

    assert len(bpf.attached(cgroup)) == 2
    limiter = EgressLimiter([UPLINK])
    try:
        limiter.reconcile({2: (cgroup, 10 * MBIT)})
        assert limiter.counters()[2].sent_packets > 0
        assert set(limiter.counters()) == {2}
        limiter.detach(2, cgroup)
        assert bpf.attached(cgroup) == []
    finally:
        limiter.close()
