"""Measured figures have a date, the commit at which they were measured, and the command that makes them again."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs_pages import PAGES, ROOT, prose

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
#: A day, but not a point in time (2026-12-24T06:00), as commands take it.
_DATE = re.compile(rf"\b\d{{1,2}} (?:{_MONTHS}) 20\d\d\b|\b20\d\d-\d\d-\d\d\b(?!T)")
#: It need not be known to the clone. One without a letter could be an amount: there must be a word before it.
_COMMIT = re.compile(r"\b(?=[0-9]*[a-f])[0-9a-f]{7,12}\b|\b(?:at|commit) [0-9]{7,12}\b")
_LEDGER = ROOT / "docs" / "benchmarks" / "measured.md"


def without_commit(text: str) -> list[str]:
    """Return the dates in a page for which there is no commit in the same paragraph.

    A heading belongs to the paragraph below it, a table to the one above it.
    """
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    joined = [parts[0]] if parts else []
    for above, part in pairwise(parts):
        if above.lstrip().startswith("#") or part.lstrip().startswith("|"):
            joined[-1] += f"\n\n{part}"
        else:
            joined.append(part)
    return [date for part in joined for date in _DATE.findall(part) if not _COMMIT.search(part)]


def rows() -> list[list[str]]:
    """Return the cells of each row of docs/benchmarks/measured.md: page, figures, command, day, commit."""
    lines = [line for line in _LEDGER.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_date_has_a_commit(page: Path) -> None:
    found = without_commit(prose(page))
    assert not found, f"at which commit? write '… at COMMIT' beside {', '.join(found)}"


def test_pages_with_dates_are_looked_at() -> None:
    assert len([page for page in PAGES if _DATE.search(prose(page))]) > 10


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]} {row[1]}")
def test_each_figure_has_a_command_a_day_and_a_commit(row: list[str]) -> None:
    page, _, command, day, commit = row
    assert "`" in command, f"no command makes it again: {command}"
    assert _DATE.search(day) or day == "in the text"
    assert re.match(r"[0-9a-f]{7,12}\b", commit) or commit == "in the text"
    if "in the text" in (day, commit):
        named = [ROOT / "README.md"] if page.startswith("README") else []
        named += [_LEDGER.parent / each for each in re.findall(r"\(([\w./-]+\.md)", page)]
        assert named
        assert all(_DATE.search(prose(each)) for each in named)


@pytest.mark.parametrize(
    "planted",
    [
        "It takes 2 s (26 November 2026).",
        "It takes 2 s (2026-11-26, natively).\n\nAt 889c557 it took 3.",
        "At 889c557 it took 3 s.\n\n## Now: 26 November 2026\n\nIt takes 2 s.",
        "| takes |\n|---|\n| 2 s (2026-11-26) |",
        "1048576 bytes take 2 s (2026-11-26).",
    ],
)
def test_a_date_without_commit_is_found(planted: str) -> None:
    assert without_commit(planted)


@pytest.mark.parametrize(
    "innocent",
    [
        "It takes 2 s (26 November 2026 at 889c557).",
        "2026-11-26 at commit\nab9edfb12345: 2 s.",
        "## Now: 26 November 2026\n\nCommit 889c557. It takes 2 s.",
        "Measured at 889c557:\n\n| on | takes |\n|---|---|\n| 2026-11-26 | 2 s |",
        "`+2h`, `2026-12-24T06:00:00Z`",
    ],
)
def test_a_date_with_commit_is_not_found(innocent: str) -> None:
    assert without_commit(innocent) == []
