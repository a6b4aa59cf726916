"""`python -m research` as a process, and that `penstock` has no such command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _research(*argv: str | Path, cwd: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "research", *map(str, argv)],
        capture_output=True, text=True, timeout=120, cwd=cwd, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_claim_is_tried_and_written_down(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    status, out, err = _research("las_mq/fig01", "las_mq/fig11-queues", "--out", page, cwd=tmp_path)
    assert (status, err) == (0, "")
    assert "holds  response times of A, B, C: two queues, strict priority: 6, 8, 1 in the paper, 6, 8, 1 here" in out
    text = page.read_text(encoding="utf-8")
    assert "2 of 2 lines come out as in the paper" in text
    assert (
        "| `las_mq/fig11-queues` LAS_MQ §5.4.2, Fig. 11(a) |  |  | not run |  | the trace 'swim' (swim/FB-2010" in text
    )


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (("las_mq/fig1",), "unknown claim 'las_mq/fig1'; did you mean 'las_mq/fig01'?"),
        (("las_mq/fig01", "--traces", "absent"), "--traces: absent: no such directory"),
        (("--lst",), "unknown argument '--lst'; did you mean --list?"),
        ((), "--out: docs: no such directory; make it, or name a file elsewhere"),
    ],
)
def test_a_wrong_request_for_claims_is_one_line(argv: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    assert _research(*argv, cwd=tmp_path) == (2, "", f"python -m research: {complaint}\n")


def test_a_reader_that_closes_the_output_causes_no_traceback(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "research", "--list"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as listing:  # fmt: skip
        assert listing.stdout is not None and listing.stderr is not None
        listing.stdout.close()
        assert listing.stderr.read() == b""
        assert listing.wait(60) == 1
