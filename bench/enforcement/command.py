"""The benchmark as a command: where each part is measured, and where its tables go."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.enforcement import guest, native
from bench.enforcement.figures import Report, measure
from demo import origin

ROOT = Path(__file__).resolve().parents[2]
#: The page with the tables, each part's between markers of its own.
PAGE = ROOT / "docs" / "benchmarks" / "kernel.md"
PARTS = (*guest.PARTS, *native.PARTS)
_BETWEEN = "build/enforcement.json"
_MACHINE_S = 3600


def main(arguments: Sequence[str]) -> int:
    """Measure the parts that are named, or all, and write their tables into the page; those of other parts stay.

    Returns:
        0; 1 if a bar was missed; 2 for an unknown part; else the status of the virtual machine.
    """
    if unknown := set(arguments) - set(PARTS):
        print(
            f"bench.enforcement: no part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}", file=sys.stderr
        )
        return 2
    named = [part for part in PARTS if not arguments or part in arguments]
    commit = origin.commit() or "unknown"
    reports: list[Report] = []
    if inside := [part for part in named if part in guest.PARTS]:
        status, reports = _in_the_machine(inside)
        if status != 0:
            return status
    if outside := [part for part in named if part in native.PARTS]:
        if os.geteuid() != 0:
            print(f"bench.enforcement: left out, as this is not root: {', '.join(outside)}", file=sys.stderr)
        else:
            reports += measure(native.PARTS, outside, "this host, natively")
    for report in reports:
        made = f"`python -m bench.enforcement {report.part}` on {dt.datetime.now(tz=dt.UTC).date()} at commit {commit}"
        write(PAGE, report.part, report.text(made))
        print(f"\n{report.text(made)}")
    missed = [figure for report in reports for figure in report.figures if not figure.met]
    print(f"\nbars missed: {len(missed)}")
    return 1 if missed else 0


def markers(part: str) -> tuple[str, str]:
    """Return the lines of a page before and after the tables of a part."""
    return f"<!-- bench-enforcement {part} -->", f"<!-- /bench-enforcement {part} -->"


def write(page: Path, part: str, text: str) -> None:
    """Put the tables of a part between its markers.

    Raises:
        ValueError: the page has none.
    """
    begin, end = markers(part)
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{page} has no {begin} … {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def _in_the_machine(parts: Sequence[str]) -> tuple[int, list[Report]]:
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.vm", "run", "--drives", "slow", "--copy-out", f"{_BETWEEN}:{_BETWEEN}", "--",
            "/opt/venv/bin/python", "-m", "bench.enforcement.guest", _BETWEEN, *parts,
        ],
        cwd=ROOT, check=False, timeout=_MACHINE_S,
    )  # fmt: skip
    if done.returncode != 0:
        return done.returncode, []
    return 0, msgspec.json.decode((ROOT / _BETWEEN).read_bytes(), type=list[Report])
