"""The demonstration, interrupted: nothing of it stays behind.

That its runs write the same bytes, and that the archive is preempted, the demonstration checks itself: it ends with 1.
`.ci/run` types `make demo`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

PROJECT = Path(__file__).parents[2]
LIMIT_S = 100


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files of the demo's own, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="demo-") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


def start(out: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "demo", "--out", str(out), *arguments]
    return subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def left_over(*places: Path) -> list[str]:
    """Processes that have one of these places in their command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if process.pid != os.getpid() and any(str(place) in line for place in places):
            found.append(line)
    return found


@pytest.mark.timeout(LIMIT_S + 20)
def test_interrupted_in_the_middle_nothing_stays(tmp_path: Path, private: Path) -> None:
    out = tmp_path / "out"
    process = start(out, "--megabytes", "60")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("plain:"):
            break
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, complaints
    assert complaints.strip() == "demo: interrupted; everything is stopped"
    assert left_over(out, private) == []
    assert list(out.iterdir()) == []
    assert list(private.iterdir()) == []
