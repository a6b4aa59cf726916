"""A stage's progress, as it is told and as it is shown."""

from __future__ import annotations

import msgspec

from penstock.model.work import StageProgress


def test_a_message_leaves_out_what_a_status_shows() -> None:
    begun = StageProgress(stage="map", tasks=4)
    assert msgspec.to_builtins(begun) == {"stage": "map", "tasks": 4}
    assert begun.row() == {
        "stage": "map", "tasks": 4, "done": 0, "after": [], "input_bytes": 0,
        "usage": {"cpu": 0.0, "disk": 0.0, "network": 0.0},
    }  # fmt: skip
