"""The demonstration's `penstock up` ends with it, also when Ctrl-C is pressed twice."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from demo import node

#: Takes the place of Python: it writes the port file of `-m penstock.cli.main up --port-file FILE`, and stays.
STAND_IN = """#!/bin/sh
echo '{"socket": "s", "agent_http": "127.0.0.1:1"}' > "$5.new"
mv "$5.new" "$5"
exec sleep 600
"""


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("second", [False, True])
def test_when_interrupted_it_stops_penstock_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: bool) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    if second:
        monkeypatch.setattr(node, "_settle", interrupted)
    started: list[psutil.Process] = []
    with pytest.raises(KeyboardInterrupt), node.running(tmp_path, {}, {}) as up:
        started += up.processes.values()
        raise KeyboardInterrupt
    assert started and not [process for process in started if process.is_running()]
