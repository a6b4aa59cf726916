"""Small schedules, worked out by hand."""

from __future__ import annotations

import pytest

from simulator.fluid import Job, serve
from simulator.fluid.disciplines import Fair, Fifo, Las, Srpt
from simulator.fluid.engine import Discipline
from simulator.fluid.las_mq import LasMq, strict
from simulator.fluid.model import discipline_of
from simulator.fluid.spec import Policy


def _jobs(*each: tuple[float, float] | tuple[float, float, float]) -> list[Job]:
    """(arrival, size[, weight])"""
    return [
        Job(name=str(n), at_s=job[0], size=job[1], weight=job[2] if len(job) > 2 else 1.0) for n, job in enumerate(each)
    ]


_FIGURE_1 = _jobs((0, 4), (1, 4), (2, 1))


def test_figure_1_of_las_mq() -> None:
    """§2.1: A ends at 9 under LAS and at 6 with two queues; B and C respond as before."""
    assert serve(_FIGURE_1, Las()) == [9.0, 9.0, 3.0]
    two = Policy(name="las_mq", queues=2, first_threshold=1, sharing="strict")
    assert serve(_FIGURE_1, discipline_of(two)) == [6.0, 9.0, 3.0]


@pytest.mark.parametrize(
    ("discipline", "ends"),
    [(Fifo(), [4.0, 8.0, 9.0]), (Srpt(), [5.0, 9.0, 3.0]), (Fair(), [8.0, 9.0, 5.0])],
    ids=["fifo", "srpt", "fair"],
)
def test_the_same_jobs_otherwise(discipline: Discipline, ends: list[float]) -> None:
    assert serve(_FIGURE_1, discipline) == pytest.approx(ends)


def test_fair_serves_by_weight() -> None:
    # 3 : 1 until the first has its 6 at time 8; the other has had 2 of its 6 by then.
    assert serve(_jobs((0, 6, 3), (0, 6, 1)), Fair()) == pytest.approx([8.0, 12.0])


def test_equal_jobs_under_processor_sharing_all_end_at_the_end() -> None:
    same = _jobs(*[(0, 2)] * 10)
    assert serve(same, Fair()) == pytest.approx([20.0] * 10)
    assert serve(same, Las()) == pytest.approx([20.0] * 10)
    assert serve(same, Fifo()) == [2.0 * n for n in range(1, 11)]


def test_las_catches_up_before_it_shares() -> None:
    # The second gets its first 3 alone; from time 6 on both share, each needing 2 more.
    assert serve(_jobs((0, 5), (3, 5)), Las()) == pytest.approx([10.0, 10.0])
    assert serve(_jobs((0, 5), (3, 4)), Las()) == pytest.approx([9.0, 8.0])


def test_an_idle_server_resets() -> None:
    for discipline in (Fifo(), Fair(), Las(), Srpt(), LasMq([1.0, float("inf")], strict)):
        assert serve(_jobs((0, 2), (10, 3), (20, 1)), discipline) == pytest.approx([2.0, 13.0, 21.0])


def test_queues_share_by_weight_and_leave_nothing_unused() -> None:
    # A is in the first queue until 1. Then A has a quarter (second queue), B three quarters (first queue) until B has
    # its 1 at 1 + 4/3; after that both are in the second queue, A first.
    policy = Policy(queues=2, first_threshold=1, weights=(3, 1))
    third = 1 + 4 / 3
    a_left = 3 - 1 - 1 / 3
    assert serve(_jobs((0, 3), (1, 2)), discipline_of(policy)) == pytest.approx([third + a_left, third + a_left + 1])


def test_a_job_as_large_as_the_threshold_ends_in_its_queue() -> None:
    policy = Policy(queues=2, first_threshold=1, sharing="strict")
    assert serve(_jobs((0, 1), (0, 2)), discipline_of(policy)) == [1.0, 3.0]


def test_thresholds_are_in_the_unit_of_the_sizes_at_any_rate() -> None:
    policy = Policy(queues=2, first_threshold=10, sharing="strict")
    ends = serve(_jobs((0, 40), (1, 40), (2, 10)), discipline_of(policy, 10.0), rate_per_s=10.0)
    assert ends == pytest.approx([6.0, 9.0, 3.0])


def test_without_arrivals_there_is_no_service() -> None:
    assert serve([], Fair()) == []
