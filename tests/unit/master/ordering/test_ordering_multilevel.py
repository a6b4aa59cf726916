"""The multilevel queue by the numbers of LAS_MQ §3.6."""

from __future__ import annotations

import math

import pytest

from master.ordering import Multilevel


def test_the_thresholds_of_the_paper() -> None:
    levels = Multilevel()
    assert [levels.upper(queue) for queue in (0, 1, 2)] == [100, 1000, 10_000]
    assert levels.upper(9) == math.inf
    assert [levels.queue_of(service) for service in (0, 100, 100.1, 1000, 1001, 1e30)] == [0, 0, 1, 1, 2, 9]


def test_one_queue_is_no_queueing() -> None:
    levels = Multilevel(queues=1)
    assert levels.queue_of(1e12) == 0
    assert levels.upper(0) == math.inf
    assert levels.shares([0]) == {0: 1.0}


def test_a_queue_weighs_a_step_more_than_the_next_and_nothing_is_left_unused() -> None:
    levels = Multilevel()
    assert levels.shares([]) == {}
    assert levels.shares([7]) == {7: 1.0}
    shares = levels.shares(range(10))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares[0] >= 0.9
    assert all(shares[queue] == pytest.approx(10 * shares[queue + 1]) for queue in range(9))
    assert levels.shares([2, 5, 5])[2] == pytest.approx(1000 / 1001)
    assert Multilevel(queues=3, step=2).weights == (1.0, 0.5, 0.25)
    assert min(Multilevel(queues=100, step=1200).weights) > 0


def test_weights_can_be_given() -> None:
    assert Multilevel(queues=3, weights=(5, 3, 2)).shares([0, 2]) == {0: pytest.approx(5 / 7), 2: pytest.approx(2 / 7)}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"queues": 0}, "queues: 0 is below 1"),
        ({"first_threshold": 0.0}, "first_threshold: 0 is not above 0"),
        ({"first_threshold": math.nan}, "first_threshold: nan"),
        ({"step": 1.0}, "step: 1 is not above 1"),
        ({"queues": 100, "step": 1e6}, "step: 1e\\+06 \\*\\* 100 queues is no number"),
        ({"weights": (1.0,)}, "weights: 1 are given for 10 queues"),
        ({"queues": 2, "weights": (1.0, 0.0)}, "weights: each is to be above 0"),
    ],
)
def test_an_invalid_queue_is_reported(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Multilevel(**wrong)  # type: ignore[arg-type]
