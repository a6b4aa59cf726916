"""An executor that has waited long gets room on some node, although the work of other nodes does not end."""

from __future__ import annotations

import pytest

from master.core.node import Held
from penstock.model import Capacity
from tests.unit.master.cluster_bed import command
from tests.unit.master.core.executor_bed import MIB, ExecutorBed, executor, profile
from tests.unit.master.core.test_core_plan_follower import end


def beside_an_endless_command(executors: int, on: tuple[str, ...] = ("b",)) -> ExecutorBed:
    """Nodes with an endless command each, beside which no executor has room, and node a: an earlier job's commands take
    its cores each second.
    """
    b = ExecutorBed("a", *on, ordering="fifo", forecasts={"u/app": profile((4, 100))})
    b.ready("a", *[command(f"endless-{node}", cores=2.0, nodes=(node,)) for node in on])
    b.ready("a", *[command(f"b{i:03}", cores=1.0, nodes=("a",)) for i in range(8)])
    b.round()
    b.job("a", "late", at=2.0)
    b.ready("a", *[executor(f"e{i}", cores=4.0) for i in range(executors)], job="late")
    return b


def running(b: ExecutorBed) -> list[tuple[str, Held]]:
    """Return the node of each task, and the task."""
    return [(name, held) for name, node in b.cluster.nodes.items() for held in node.held.values()]


def all_end_each_second(b: ExecutorBed, seconds: int, on: tuple[str, ...] = ("a",)) -> dict[tuple[str, str], int]:
    """Everything on these nodes but endless commands ends each second, and each command is followed by another one.
    Return when executors were placed.
    """
    at: dict[tuple[str, str], int] = {}
    for second in range(seconds):
        for node, held in [one for one in running(b) if one[0] in on]:
            if held.task.startswith("endless"):
                continue
            end(b, held.task, job=held.job, node=node)
            if not held.executor:
                b.ready("a", command(f"{held.task.split('-')[0]}-{second}", cores=1.0, nodes=(node,)))
        for name in [*b.cluster.nodes]:
            b.heartbeat(name)
        b.round(1.0)
        at |= {(one.job, one.task): second for _, one in running(b) if one.executor}
    return at


def test_room_that_does_not_grow_is_looked_for_on_another_node_at_once() -> None:
    placed = all_end_each_second(beside_an_endless_command(1), 65)
    assert placed.keys() == {("late", "e0")}


def test_executors_starve_on_no_node_whose_work_does_not_end() -> None:
    placed = all_end_each_second(beside_an_endless_command(3), 135)
    assert len(placed) == 3, "the first after 60 s, each other one after 30 s more"


def test_room_is_looked_for_on_every_node_before_one_where_it_was_given_up() -> None:
    placed = all_end_each_second(beside_an_endless_command(1, on=("b", "c", "d")), 125)
    assert placed.keys() == {("late", "e0")}


def test_an_executor_whose_nodes_were_all_given_up_leaves_the_turn_to_others() -> None:
    b = beside_an_endless_command(0, on=("b", "c"))
    b.job("a", "stuck", at=1.0)
    b.ready("a", executor("e0", cores=4.0, nodes=("b", "c")), job="stuck")
    b.ready("a", executor("e0", cores=4.0, nodes=("a",)), job="late")
    assert all_end_each_second(b, 95).keys() == {("late", "e0")}


@pytest.mark.parametrize("reported", [None, [(4, 900), (2, 900)]])
def test_many_older_executors_for_which_no_node_is_found_hold_up_no_younger_one(
    reported: list[tuple[float, int]] | None,
) -> None:
    """Their only node has an endless command, or it has the cores now and lacks them later."""
    b = beside_an_endless_command(0, on=("b",) if reported is None else ())
    b.forecasts["u/more"] = profile((1, 100), (4, 100))
    if reported is not None:
        b.node("b", capacity=Capacity(cores=4, memory_bytes=1000 * MIB))
        b.beats("b", reported)
    for number in range(12):
        b.job("a", f"stuck{number}", at=1.0)
        b.ready("a", executor("e0", "more", cores=4.0, nodes=("b",)), job=f"stuck{number}")
    b.ready("a", executor("e0", cores=4.0, nodes=("a",)), job="late")
    assert all_end_each_second(b, 65).keys() == {("late", "e0")}


def test_older_executors_on_nodes_whose_work_does_not_end_hold_up_no_younger_one() -> None:
    """Each could have room on a node of its own if an endless command there ended."""
    nodes = tuple("bcdefghijk")
    b = beside_an_endless_command(0, on=nodes)
    for node in nodes:
        b.job("a", f"stuck-{node}", at=1.0)
        b.ready("a", executor("e0", cores=4.0, nodes=(node,)), job=f"stuck-{node}")
    b.ready("a", executor("e0", cores=4.0, nodes=("a",)), job="late")
    assert all_end_each_second(b, 65).keys() == {("late", "e0")}


@pytest.mark.parametrize("stuck", [2, 3, 6])
def test_older_executors_on_nodes_with_short_and_endless_work_hold_up_a_younger_one_once_each(stuck: int) -> None:
    """Tasks leave the nodes of the older ones, too, whenever no room is kept there."""
    nodes = tuple("bcdefg"[:stuck])
    b = beside_an_endless_command(0, on=nodes)
    for node in nodes:
        b.ready("a", *[command(f"s{node}{i:03}", cores=1.0, nodes=(node,)) for i in range(4)])
        b.job("a", f"stuck-{node}", at=1.0)
        b.ready("a", executor("e0", cores=4.0, nodes=(node,)), job=f"stuck-{node}")
    b.ready("a", executor("e0", cores=4.0, nodes=("a",)), job="late")
    placed = all_end_each_second(b, 35 + 32 * stuck, on=("a", *nodes))
    assert placed.keys() == {("late", "e0")}


def test_one_that_takes_turns_with_another_has_room_on_its_next_node() -> None:
    """Its nearest node, and the only one of the other executor, have short work beside endless work."""
    b = beside_an_endless_command(0, on=("b", "c"))
    b.node("d", capacity=Capacity(cores=4, memory_bytes=1000 * MIB))
    for node in ("b", "c", "d"):
        b.ready("a", *[command(f"s{node}{i}", cores=1.0, nodes=(node,)) for i in range(4)])
    b.job("a", "two", at=1.0)
    b.ready("a", executor("e0", cores=4.0, nodes=("b", "d")), job="two")
    b.job("a", "other", at=1.5)
    b.ready("a", executor("e0", cores=4.0, nodes=("c",)), job="other")
    assert all_end_each_second(b, 100, on=("a", "b", "c", "d")).keys() == {("two", "e0")}


def test_a_command_that_its_node_refuses_has_not_left_it() -> None:
    """Else an older executor, whose node's work does not end, goes first."""
    b = beside_an_endless_command(0, on=("b",))
    b.job("a", "stuck", at=1.0)
    b.ready("a", executor("e0", cores=4.0, nodes=("b",)), job="stuck")
    b.ready("a", executor("e0", cores=4.0, nodes=("a",)), job="late")
    b.refused = {"full"}
    b.ready("a", command("full", cores=1.0, nodes=("b",)))
    assert all_end_each_second(b, 40).keys() == {("late", "e0")}
