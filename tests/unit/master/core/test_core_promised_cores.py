"""The master's account of CPU work on a node whose cores are promised to commands."""

from __future__ import annotations

import pytest

from penstock.model import ContainerSpec, KindAmounts, ResourceKind, TaskRequest
from penstock.wire.master_api import Promote
from tests.unit.master.cluster_bed import MB, Bed, bed, command, task


def node_with(*, idle: float, promised: float, pending: float = 0.0) -> Bed:
    """Return a node of four cores that has reported this; a core does 1 MB/s."""
    b = bed("a", default_cpu_bytes_per_s=float(MB), ept_s=1.0)
    b.job("a")
    b.heartbeat("a", idle=(idle, 1, 2), promised_cores=promised, pending=KindAmounts(cpu=pending))
    return b


def test_a_node_whose_cores_are_all_promised_gets_cpu_work_only_for_the_slots_that_it_calls_idle() -> None:
    b = node_with(idle=0, promised=4.0)
    b.ready("a", task("t"))
    assert b.round() == []
    b.heartbeat("a", idle=(1, 1, 2), promised_cores=4.0)
    assert b.round() == [("t", "a")], "a core that the promise does not use is lent"


def test_a_command_without_a_promise_is_not_placed_there_either() -> None:
    b = node_with(idle=0, promised=4.0)
    b.ready("a", command("c"))
    assert b.round() == []


@pytest.mark.parametrize(("promised", "expected"), [(0.0, 4), (2.0, 2), (3.0, 1)])
def test_work_within_ept_is_that_of_the_slots_whose_cores_are_not_promised(promised: float, expected: int) -> None:
    """No slot is idle; tasks of 1 MB, a second of a core each, are placed as long as APT is below EPT, a second."""
    b = node_with(idle=0, promised=promised)
    b.ready("a", *(task(f"t{n}") for n in range(8)))
    assert len(b.round()) == expected


def test_a_promised_command_takes_its_cores_at_once_and_leaves_the_others_to_tasks() -> None:
    b = node_with(idle=4, promised=0.0)
    b.answering = False
    b.ready("a", command("c", cores=3.0, cpu=100))
    assert b.round() == [("c", "a")]
    row = b.cluster.table.rows["a"]
    b.cluster.table.settle()
    assert b.cluster.table.idle[row, 0] == 1.0
    assert b.cluster.table.pending[row, 0] == 0.0, "its work is that of its promise"
    assert b.cluster.table.cores_free[row] == 1.0


def test_commands_and_tasks_of_one_round_share_one_account() -> None:
    """Three of four cores go to the command; the tasks that fit beside it in an EPT are those of one core."""
    b = node_with(idle=4, promised=0.0)
    b.ready("a", command("c", cores=3.0), *(task(f"t{n}") for n in range(8)))
    placed = [name for name, _ in b.round()]
    assert "c" in placed
    assert len(placed) - 1 <= 2


def test_a_command_of_the_disk_that_is_promised_cores_still_takes_its_slot() -> None:
    b = node_with(idle=4, promised=0.0)
    b.answering = False
    spec = ContainerSpec(argv=("true",), cpu_cores=1.0)
    request = TaskRequest(task="d", usage=KindAmounts(cpu=MB, disk=MB), command=spec, command_kind=ResourceKind.DISK)
    b.ready("a", request)
    assert b.round() == [("d", "a")]
    b.cluster.table.settle()
    assert b.cluster.table.idle[b.cluster.table.rows["a"]].tolist() == [3.0, 0.0, 2.0]
    assert b.cluster.table.pending[b.cluster.table.rows["a"]].tolist() == [0.0, MB, 0.0]


def test_the_work_of_a_promised_command_bars_no_task_of_its_round() -> None:
    """The only idle slot's core goes to the command; beside it three cores do three tasks of a second in an EPT."""
    b = node_with(idle=1, promised=0.0)
    b.ready("a", command("c", cores=1.0, cpu=100), *(task(f"t{n}") for n in range(8)))
    assert sorted(name for name, _ in b.round()) == ["c", "t0", "t1", "t2"]


def test_commands_ahead_of_others_start_on_the_slots_whose_cores_are_not_promised() -> None:
    b = bed("a", ordering="ejf")
    b.job("a", "long", at=2.0)
    b.ready("a", command("l"), job="long")
    assert b.round() == [("l", "a")]
    b.job("a", "short", at=1.0)
    b.heartbeat("a", idle=(0, 1, 2), pending=KindAmounts(cpu=1e12), most_commands=16, promised_cores=3.0)
    b.ready("a", *(command(f"s{n}") for n in range(4)), job="short")
    assert b.round() == [("s0", "a")]


def test_a_command_that_is_promised_cores_is_promoted_without_an_idle_slot() -> None:
    b = bed("a")
    b.job("a")
    b.heartbeat("a", promised_memory_bytes=1000 * MB)
    b.ready("a", command("o", 300, cores=2.0), command("p", 300), opportunistic=True)
    assert len(b.round()) == 2
    b.heartbeat("a", idle=(0, 1, 2))
    b.round()
    assert [decision.task for _, decision in b.decisions_of(Promote)] == ["o"]
