"""Stages keep their order, a job that has ever new ones does not grow, and progress as it is reported and shown."""

from __future__ import annotations

import msgspec
import pytest

from penstock.model.stages import MOST_STAGES, StageRanks
from penstock.model.work import StageProgress


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


def test_a_message_leaves_out_fields_that_a_status_shows() -> None:
    begun = StageProgress(stage="map", tasks=4)
    assert msgspec.to_builtins(begun) == {"stage": "map", "tasks": 4}
    assert msgspec.to_builtins(begun.row()) == {
        "stage": "map", "tasks": 4, "done": 0, "skipped": 0, "after": [], "input_bytes": 0,
        "usage": {"cpu": 0.0, "disk": 0.0, "network": 0.0},
    }  # fmt: skip


def test_more_skipped_tasks_than_done_ones_are_refused() -> None:
    """They would be shown as a negative number of tasks that were run."""
    packed = msgspec.msgpack.encode({"stage": "map", "tasks": 4, "done": 1, "skipped": 2})
    with pytest.raises(msgspec.ValidationError, match="skipped: expected at most `done`; count a skipped task"):
        msgspec.msgpack.decode(packed, type=StageProgress)
    assert StageProgress(stage="map", tasks=4, done=2, skipped=2).skipped == 2
