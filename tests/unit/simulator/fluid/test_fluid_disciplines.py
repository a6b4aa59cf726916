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
_STRICT = Policy(queues=2, first_threshold=1, sharing="strict")


@pytest.mark.parametrize(
    ("discipline", "jobs", "ends"),
    [
        # Figure 1 of LAS_MQ (§2.1): A ends at 9 under LAS and at 6 with two queues; B and C respond as before.
        (Las(), _FIGURE_1, [9.0, 9.0, 3.0]),
        (discipline_of(_STRICT), _FIGURE_1, [6.0, 9.0, 3.0]),
        (Fifo(), _FIGURE_1, [4.0, 8.0, 9.0]),
        (Srpt(), _FIGURE_1, [5.0, 9.0, 3.0]),
        (Fair(), _FIGURE_1, [8.0, 9.0, 5.0]),
        # 3 : 1 until the first has its 6 at time 8; the other has had 2 of its 6 by then.
        (Fair(), _jobs((0, 6, 3), (0, 6, 1)), [8.0, 12.0]),
        # Equal jobs under processor sharing all end at the end.
        (Fair(), _jobs(*[(0, 2)] * 10), [20.0] * 10),
        (Las(), _jobs(*[(0, 2)] * 10), [20.0] * 10),
        (Fifo(), _jobs(*[(0, 2)] * 10), [2.0 * n for n in range(1, 11)]),
        # The second gets its first 3 alone; from time 6 on both share, each needing 2 more.
        (Las(), _jobs((0, 5), (3, 5)), [10.0, 10.0]),
        (Las(), _jobs((0, 5), (3, 4)), [9.0, 8.0]),
        # A job as large as the threshold ends in its queue.
        (discipline_of(_STRICT), _jobs((0, 1), (0, 2)), [1.0, 3.0]),
        # A is in the first queue until 1. Then A has a quarter (second queue), B three quarters (first queue) until B
        # has its 1 at 7/3; after that both are in the second queue, A first.
        (discipline_of(Policy(queues=2, first_threshold=1, weights=(3, 1))), _jobs((0, 3), (1, 2)), [4.0, 5.0]),
        (Fair(), [], []),
    ],
)
def test_a_schedule_worked_out_by_hand(discipline: Discipline, jobs: list[Job], ends: list[float]) -> None:
    assert serve(jobs, discipline) == pytest.approx(ends)


def test_an_idle_server_resets() -> None:
    for discipline in (Fifo(), Fair(), Las(), Srpt(), LasMq([1.0, float("inf")], strict)):
        assert serve(_jobs((0, 2), (10, 3), (20, 1)), discipline) == pytest.approx([2.0, 13.0, 21.0])


def test_thresholds_are_in_the_unit_of_the_sizes_at_any_rate() -> None:
    policy = Policy(queues=2, first_threshold=10, sharing="strict")
    ends = serve(_jobs((0, 40), (1, 40), (2, 10)), discipline_of(policy, 10.0), rate_per_s=10.0)
    assert ends == pytest.approx([6.0, 9.0, 3.0])
