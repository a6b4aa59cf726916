"""The quotations in docs/troubleshooting.md are messages of the code: each in the first column of its tables."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.docs_pages import ROOT

_PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
#: Cells begin with a message; several spans in one cell are parts of one.
_CELLS = [row.split(" | ")[0].strip("| ") for row in _PAGE.splitlines() if row.startswith("| `")]
_QUOTED = [(cell, span) for cell in _CELLS for span in re.findall(r"`([^`]+)`", cell)]


@cache
def _said() -> str:
    """Return all sources of the daemons and the command, texts put together, with ``…`` for inserted values."""
    files = [path for room in ("penstock", "agent", "master") for path in (ROOT / room).rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r"\{[^{}\n]+\}", "…", re.sub(r"\"\s*\n\s*f?\"", "", text))


def test_the_page_quotes_messages() -> None:
    assert len(_QUOTED) > 30


@pytest.mark.parametrize(("cell", "quoted"), _QUOTED, ids=[quoted for _, quoted in _QUOTED])
def test_a_quoted_message_is_one(cell: str, quoted: str) -> None:
    for part in re.split(r"\s*…\s*", quoted):
        words = part.strip("; ")
        assert not words or words in _said() or re.search(_loosely(words), _said()), f"nothing says {words!r} ({cell})"


def _loosely(words: str) -> str:
    """A number or a name that the page shows may be put in there."""
    return r"(?:…|\b)".join(re.escape(part) for part in re.split(r"(?<=: )\d+|\b\d+\b", words))


def test_the_demo_s_output_in_readme_is_the_demo_s() -> None:
    """The figures of README are a run's; the text beside them is still that of the program."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = page.split("What it printed", 1)[1].split("```text\n", 1)[1].split("```", 1)[0]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "demo").glob("*.py"))
    labels = re.findall(r"^ {2,4}([A-Za-z][^\d\n]*?) {2,}\d", shown, re.MULTILINE)
    assert len(labels) > 10
    for label in labels:
        assert f'"{label}"' in sources or f'"{label.replace("-", "_")}"' in sources or label in sources, label
    assert (ROOT / "docs" / "demo-timeline.png").read_bytes().startswith(b"\x89PNG")
