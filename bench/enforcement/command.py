"""The benchmark as a command: where each part is measured, and where its tables go."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.enforcement import guest
from bench.enforcement.figures import Figure, Report, tables

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kernel.md"
BEGIN, END = "<!-- bench-enforcement -->", "<!-- /bench-enforcement -->"
#: Measured on this host; everything else in the virtual machine.
NATIVE = "native"
_NATIVE_MBIT = (1, 10, 100, 500)
_BETWEEN = "build/enforcement.json"
_MACHINE_S = 3600


def main(arguments: Sequence[str]) -> int:
    """Measure the parts that are named, or all; only then the page is written.

    Returns:
        0; 1 if a bar was missed; 2 for a part that there is not; else what the virtual machine ended with.
    """
    if unknown := set(arguments) - {NATIVE, *guest.PARTS}:
        known = ", ".join([*guest.PARTS, NATIVE])
        print(f"bench.enforcement: no part {', '.join(sorted(unknown))}; there are: {known}", file=sys.stderr)
        return 2
    reports = []
    if inside := [part for part in guest.PARTS if not arguments or part in arguments]:
        status, report = _in_the_machine(inside)
        if report is None:
            return status
        reports.append(report)
    if not arguments or NATIVE in arguments:
        if os.geteuid() != 0:
            print("bench.enforcement: the network is measured by root only; left out on this host", file=sys.stderr)
        else:
            reports.append(Report.of_this_host(_native(), "this host, natively"))
    text = "\n\n".join(f"### {report.where}, Linux {report.kernel}\n\n{tables(report.figures)}" for report in reports)
    print(f"\n{text}")
    if not arguments:
        write(PAGE, text)
    missed = [figure for report in reports for figure in report.figures if not figure.met]
    print(f"\nbars missed: {len(missed)}")
    return 1 if missed else 0


def write(page: Path, text: str) -> None:
    """Put the tables between the page's markers.

    Raises:
        ValueError: the page has none.
    """
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def _in_the_machine(parts: Sequence[str]) -> tuple[int, Report | None]:
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.vm", "run", "--drives", "slow", "--copy-out", f"{_BETWEEN}:{_BETWEEN}", "--",
            "/opt/venv/bin/python", "-m", "bench.enforcement.guest", _BETWEEN, *parts,
        ],
        cwd=ROOT, check=False, timeout=_MACHINE_S,
    )  # fmt: skip
    if done.returncode != 0:
        return done.returncode, None
    return 0, Report.decode((ROOT / _BETWEEN).read_bytes())


def _native() -> Iterator[Figure]:
    from bench.enforcement.network import SETTINGS, Network

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        with contextlib.closing(Network(Path(directory))) as made:
            yield from made.egress(_NATIVE_MBIT)
            yield from made.changed(20, 200)
            yield from made.ingress((10, 100))
        with contextlib.closing(Network(Path(directory), **SETTINGS)) as made:
            yield from made.shared()
