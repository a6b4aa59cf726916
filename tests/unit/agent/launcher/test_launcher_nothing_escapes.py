"""Whatever a command does, it ends with its cgroup: on any hierarchy, it takes no controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.escapes import ESCAPES, escape
from tests.unit.agent.launcher.launcher_bed import Connect


@pytest.mark.parametrize("how", ESCAPES)
async def test_nothing_escapes(connect: Connect, cgroup: Path, how: str) -> None:
    client = await connect()
    await escape(client.launcher, client.exits, cgroup, how)
