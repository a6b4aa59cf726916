"""EPT follows the lengths of the tasks that are placed, where the operator gave none."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from master.explain.recording import record
from master.placement.lengths import KnownLengths, TaskLengths
from master.status import status_document
from penstock.model import KindAmounts
from tests.unit.master.cluster_bed import MB, Bed, bed, load, task


def placed_beside(made: Bed, cpu_mb: int) -> int:
    """Return how many of two tasks of 200 MB are placed on a node whose cores have some of their work before them."""
    made.job("a")
    made.ready("a", *[task(f"first{i}", cpu=200) for i in range(4)])
    made.round()
    made.heartbeat("a", idle=(0, 2, 2), pending=KindAmounts(cpu=float(cpu_mb) * MB))
    made.ready("a", *[task(f"then{i}", cpu=200) for i in range(2)])
    return len(made.round(1.0))


def test_cpu_work_still_to_come_does_not_bar_a_node_of_long_tasks() -> None:
    """Four cores of 50 MB/s each have 400 MB before them, 2 s; a task takes 4 s."""
    assert placed_beside(bed("a", ept_s=1.0), cpu_mb=400) == 0
    assert placed_beside(bed("a"), cpu_mb=400) == 2
    assert placed_beside(bed("a"), cpu_mb=4000) == 0, "20 s of work are enough, however long tasks are"


def test_a_master_that_is_restarted_places_as_before() -> None:
    """It is not 1 s again, by which the work that its node has yet to do would bar it."""
    made = bed("a")
    placed_beside(made, cpu_mb=400)
    after = made.successor()
    after.node("a", load=load(idle=(0, 2, 2), pending=KindAmounts(cpu=400.0 * MB)))
    after.job("a", "next")
    after.ready("a", task("t", cpu=200), job="next")
    assert len(after.round()) == 1
    assert after.cluster.table.ept_s == 4.0


@given(st.lists(st.floats(1e-3, 1e3), max_size=600), st.lists(st.floats(1e-3, 1e3), min_size=64, max_size=300))
def test_lengths_learnt_after_a_restart_add_to_the_known_ones(before: list[float], then: list[float]) -> None:
    lengths, next_one = TaskLengths(), TaskLengths()
    for length_s in before:
        lengths.see(length_s)
        lengths.ept_s(0.1)
    for length_s in before[-64:]:  # may be lost: as many as are stored together
        lengths.see(length_s)
    lengths.ept_s(0.1)
    known = lengths.take_changes()
    if known is None:
        assert len(before) < 64 and lengths.ept_s(0.1) == 1.0
        return
    next_one.restore(known)
    for length_s in then:
        lengths.see(length_s)
        next_one.see(length_s)
        assert next_one.ept_s(0.1) == lengths.ept_s(0.1)


def test_lengths_that_are_none_are_not_taken_over() -> None:
    lengths = TaskLengths()
    lengths.restore(KnownLengths(math.nan, (math.inf, -1.0, math.nan)))
    assert lengths.ept_s(0.1) == 1.0
    lengths.see(3.0)
    assert lengths.ept_s(0.1) == 3.0


def test_people_see_the_ept_of_this_moment() -> None:
    made = bed("a")
    assert status_document(made.cluster, made.now).ept_s == 1.0
    placed_beside(made, cpu_mb=400)
    assert status_document(made.cluster, made.now).ept_s == 4.0
    assert record(made.cluster, made.now).settings.ept_s == 4.0


@given(st.lists(st.floats(1e-3, 1e3), max_size=600), st.floats(0.01, 20.0))
def test_ept_stays_within_its_bounds_and_near_the_need_of_tasks(lengths_s: list[float], interval_s: float) -> None:
    lengths, least_s = TaskLengths(), max(1.0, interval_s)
    for length_s in lengths_s:
        lengths.see(length_s)
        assert least_s <= lengths.ept_s(interval_s) <= max(5.0, least_s)
    if lengths_s:
        latest = sorted(lengths_s[-256:])
        wanted_s = min(max(latest[int(0.75 * (len(latest) - 1))], least_s), max(5.0, least_s))
        assert 0.9 * wanted_s - 1e-9 <= lengths.ept_s(interval_s) <= wanted_s / 0.9 + 1e-9


def test_ept_stays_while_no_task_of_known_size_is_placed() -> None:
    lengths = TaskLengths()
    lengths.see(3.0)
    assert [lengths.ept_s(0.1) for _ in range(3)] == [3.0, 3.0, 3.0]
