"""The demonstration itself, small: agent, master, both runs, the preemption; and that nothing of it stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.cgroup_root import choose_root
from demo.records import EXECUTORS
from demo.report import KINDS

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
@pytest.mark.skipif(
    choose_root("x") is None, reason="elsewhere: without a cgroup of ours nobody sees what containers use"
)
def test_all_runs_agree_and_the_archive_is_preempted(tmp_path: Path, private: Path) -> None:
    out = tmp_path / "out"
    process = start(out, "--megabytes", "8")
    said, complaints = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said + complaints
    assert complaints == ""
    assert "all runs wrote the same bytes" in said
    assert "status while it lasts: http://127.0.0.1:" in said
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert report["differences"] == []
    for run in report["runs"].values():
        assert run["figures"]["makespan_s"] >= run["figures"]["mean_completion_s"] > 0
        assert run["figures"]["used"] > 0
    assert list(report["runs"]) == list(EXECUTORS)
    (preempted,) = report["runs"]["beside"]["preemptions"]
    assert preempted["resource"] == "memory"
    assert "T_preempt" in preempted["reason"]
    archive = report["runs"]["beside"]["archive"]
    assert archive["ended"]["by"] == "preempted"
    assert archive["bytes_done"] > 0
    timeline = json.loads((out / "timeline.json").read_text())
    for run in timeline["runs"].values():
        assert set(run["samples"][0]["kinds"]) == set(KINDS)
        assert {work["kind"] for work in run["works"]} == set(KINDS)
    assert sorted(path.suffix for path in out.iterdir()) in ([".json", ".json"], [".json", ".json", ".png"])
    assert left_over(out, private) == []
    assert list(private.iterdir()) == []


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
