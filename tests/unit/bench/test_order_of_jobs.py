"""The comparison of orders: every run of it can be made, and figures are of pairs with the same jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.order_of_jobs import BEST, MIXES, POLICIES, THRESHOLDS, point, ratios, spread, table


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.name)
def test_every_run_is_of_one_order_at_one_load_with_one_seed(mix: object) -> None:
    for policy in (*POLICIES, *THRESHOLDS):
        made = point(mix, policy, 0.9, 3, Path("/traces"))  # type: ignore[arg-type]
        assert made.seed == 3
        assert made.spec.server.load == 0.9
        assert made.spec.policy.ranked
        assert made.spec.policy.name == policy.settings["policy.name"]


def test_a_ratio_is_of_the_same_seed() -> None:
    found = {
        ("m", "las", 0.9): [(4.0, 1.0, 1.0), (9.0, 1.0, 1.0)],
        ("m", BEST.name, 0.9): [(2.0, 1.0, 1.0), (3.0,) * 3],
    }
    assert ratios(found, "m", "las", 0.9) == [2.0, 3.0]
    assert spread([2.0, 3.0]) == "2.5 ± 0.71"
    assert table("x", MIXES[:1], POLICIES[:1], lambda mix, policy: f"{mix}/{policy}") == [
        "| x | fifo |", "|---|---|", "| heavy | heavy/fifo |", "",
    ]  # fmt: skip
