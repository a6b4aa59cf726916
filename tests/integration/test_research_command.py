"""`python -m research` as a process, and that `penstock` has no such command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_claim_is_tried_and_written_down(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = subprocess.run(
        [sys.executable, "-m", "research", "las_mq/fig01", "las_mq/fig11-queues", "--out", page],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),  # to start workers takes longer
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "holds  response times of A, B, C: two queues, strict priority: 6, 8, 1 in the paper, 6, 8, 1 here" in (
        done.stdout
    )
    text = page.read_text(encoding="utf-8")
    assert "2 of 2 lines come out as in the paper" in text
    assert (
        "| `las_mq/fig11-queues` LAS_MQ §5.4.2, Fig. 11(a) |  |  | not run |  | the trace 'swim' (swim/FB-2010" in text
    )


def test_a_reader_that_closes_the_output_causes_no_traceback(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "research", "--list"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as listing:  # fmt: skip
        assert listing.stdout is not None and listing.stderr is not None
        listing.stdout.close()
        assert listing.stderr.read() == b""
        assert listing.wait(60) == 1
