"""Stages keep their order, and a job that has ever new ones does not grow."""

from __future__ import annotations

from penstock.model.stages import MOST_STAGES, StageRanks


def test_ranks_rise_with_first_appearance() -> None:
    ranks = StageRanks()
    assert [ranks.rank(stage) for stage in ("map", "reduce", "map", "", "reduce")] == [0, 1, 0, 2, 1]


def test_a_job_without_end_does_not_grow_and_new_stages_stay_behind_old_ones() -> None:
    ranks = StageRanks()
    told = [ranks.rank(str(number)) for number in range(3 * MOST_STAGES)]
    assert told == sorted(set(told))
    assert len(ranks) <= MOST_STAGES
    assert ranks.rank(str(3 * MOST_STAGES - 1)) == told[-1]
    assert ranks.rank("0") == told[-1] + 1, "it was forgotten, and comes after all others"
