"""Executors in `penstock status`: where they are, and whether they are late."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from penstock.cli.render_host import host_view


@pytest.mark.parametrize(
    ("executor", "note"),
    [
        (None, ""),
        ({"application": "sort", "slot": None, "slots": None, "behind": 0.0, "stuck": False}, "executor of sort"),
        ({"application": "sort", "slot": 3, "slots": 20, "behind": 0.0}, "executor of sort, slot 4 of 20"),
        (
            {"application": "sort", "slot": 3, "slots": 20, "behind": 1.34, "stuck": True},
            "executor of sort, slot 4 of 20, its stage takes 1.3 × as long as expected, its node has no free resources",
        ),
    ],
)
def test_the_note_of_an_executor(executor: dict[str, Any] | None, note: str) -> None:
    console = Console(width=300)
    with console.capture() as captured:
        console.print(host_view({"containers": [{"container": "c-1", "name": "x", "executor": executor}]}))
    line = next(line for line in captured.get().splitlines() if line.startswith("c-1"))
    assert line.split(maxsplit=2)[2:] == ([note] if note else []) or line.split(maxsplit=2)[2].strip() == note
