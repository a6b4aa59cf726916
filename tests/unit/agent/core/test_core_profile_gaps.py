"""Slots without a sample of an executor are reported as not measured: over a late sample, and a restart of the
agent.
"""

from __future__ import annotations

import msgspec
import pytest

from agent.core import events as e
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.wire.master_api import ExecutorUse, Registered
from tests.fakes.node_bed import MIB
from tests.unit.agent.core.executors_bed import Bed, cores, restarted


def bed(*, gaps_read: bool = True, **settings: float) -> Bed:
    """A node with an executor that has just started, and a master that reads gaps or does not."""
    made = Bed(**settings)
    made.assign("a", cores(1))
    made.started("a")
    made.node.executors.surrogate.gaps_read = gaps_read
    return made


def sample_late(one: Bed, seconds: float, use_cores: float) -> None:
    """The agent comes to its next sample after ``seconds``: the rates are means over all of them."""
    one.now += seconds
    use = ContainerUse(cpu_cores=use_cores, memory_bytes=100 * MIB)
    one.send(e.Sampled(Snapshot(one.now, seconds, containers={one.container("a"): use}), one.wall_s))


def told(one: Bed) -> list[float | None]:
    """Return the milli-cores of each slot."""
    (use,) = one.beat().executors
    assert [slot is None for slot in use.mean] == [slot is None for slot in use.peak]
    return [slot[0] if slot is not None else None for slot in use.mean]


@pytest.mark.parametrize(("gaps_read", "gap"), [(True, None), (False, 1333)], ids=["told", "as the slot before"])
def test_slots_that_a_late_sample_found_without_one_were_not_measured(gaps_read: bool, gap: float | None) -> None:
    """A master that reads no gaps gets the slot before each."""
    one = bed(gaps_read=gaps_read)
    one.sample(4, cores=2.0)
    sample_late(one, 13.0, 1.0)
    one.sample(4, cores=3.0)
    assert told(one) == [2000, 1333, gap, gap, gap, 1667, 3000]


def test_a_sample_that_is_a_slot_late_leaves_no_gap() -> None:
    one = bed()
    one.sample(2, cores=2.0)
    sample_late(one, 6.0, 2.0)
    one.sample(1, cores=2.0)
    assert told(one) == [2000, 2000, 2000]


def test_an_agent_that_is_to_sample_seldom_is_not_late() -> None:
    one = bed(sample_interval_s=10.0)
    for _ in range(3):
        sample_late(one, 10.0, 2.0)
    assert told(one) == [2000] * 10
    sample_late(one, 24.0, 1.0)
    assert told(one) == [None] * 7 + [1000]


@pytest.mark.parametrize(("sample_interval_s", "slots"), [(1.0, [2000, None, None, 2000]), (10.0, [2000] * 4)])
def test_so_it_is_from_the_last_sample_to_the_end(sample_interval_s: float, slots: list[float | None]) -> None:
    one = bed(sample_interval_s=sample_interval_s)
    one.sample(1, cores=2.0, cpu_seconds=2.0)
    one.sample(2, cores=2.0, cpu_seconds=6.0)
    one.now += 8.0
    one.exit(one.container("a"), cpu_s=22.0)
    assert told(one) == slots


def test_while_no_agent_ran_nothing_was_measured_and_the_next_two_agents_report_so() -> None:
    one = bed()
    one.sample(1, cores=0.5, cpu_seconds=0.5)
    one.sample(59, cores=0.5)
    second = restarted(one, one.container("a"), after_s=11.0)

    second.node.executors.surrogate.gaps_read = True
    second.sample(1, cores=2.0, cpu_seconds=30.0 + 12.0)
    second.sample(6, cores=2.0)
    assert told(second) == [500] * 20 + [None] * 3 + [1000, 2000, 2000], "without a sample: 60 to 69 s"
    third = restarted(second, second.container("a"), after_s=8.0)
    third.node.executors.surrogate.gaps_read = True
    third.sample(1, cores=0.0, cpu_seconds=42.0 + 12.0 + 9.0)
    heard = told(third)
    assert heard[20:23] == [None] * 3, "the journal has them"
    assert heard[26:] == [None, None, 1000], "use in the gap before counts once"


def test_the_wire_has_null_only_from_an_agent_whose_master_supports_it() -> None:
    use = ExecutorUse(job="j", task="t", slot_s=3.0, mean=[(1, 2, 3, 4), None], peak=[(1, 2, 3, 4), None])
    said = msgspec.msgpack.encode(use)
    assert msgspec.msgpack.decode(said)["mean"] == [[1, 2, 3, 4], None]
    assert msgspec.msgpack.decode(said, type=ExecutorUse) == use
    before = {"protocol": 1, "version": "0.1.0", "heartbeat_s": 1.0}
    assert not msgspec.convert(before, Registered).profile_gaps
    assert msgspec.convert({**before, "profile_gaps": True}, Registered).profile_gaps
