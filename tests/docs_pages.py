"""The parts of the documentation's pages that can be tried: their fenced blocks, and the commands in their sentences.

A comment in front of a block defines how it is tried when it is not simply run::

    <!-- test: parse; it needs two more machines -->      read by its own command's parser only
    <!-- test: compile; a part of a program -->            Python: compiled, and its imports are there
    <!-- test: by tests/integration/test_x.py -->          another test does it, and names the page
    <!-- file: job.toml -->                                its content is in this file when the commands run
    <!-- session
    seq 9 > big.txt                                        commands that the page's reader has in mind
    -->
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The pages that are examined: a page that is not here does not exist.
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "ansible").rglob("*.md"),
        *(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),
    ]
)
#: Languages of blocks that do something; of the others some are only read, and no other is allowed.
COMMANDS, DATA, PROSE = ("sh", "console"), ("toml", "yaml", "json", "python", "diff"), ("text", "hex", "c", "promql")

#: Blocks that a test of their own tries, by page and language; it names the page.
ELSEWHERE = {
    ("client.md", "python"): "tests/integration/test_gate.py",
    ("dataflow.md", "python"): "tests/unit/penstock/dataset/test_dataflow_page.py",
    ("extending.md", "diff"): "tests/integration/test_docs_extending.py",
    ("extending.md", "python"): "tests/integration/test_docs_extending.py",
    ("extending.md", "sh"): "tests/integration/test_docs_extending.py",
    ("integrate.md", "python"): "tests/integration/test_integrate.py",
    ("protocol.md", "python"): "tests/unit/penstock/wire/test_protocol_page.py",
    ("research.md", "sh"): "tests/unit/simulator/scenario/test_scenario_docs.py",
    ("simulate.md", "sh"): "tests/unit/simulator/scenario/test_scenario_docs.py",
}

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>[^\n]*)\n(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_HIDDEN = re.compile(r"^<!-- session\n(?P<commands>.*?)^-->$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- test: (?P<how>parse|compile|by)(?P<rest>[; ][^>]*?) -->\n\Z")
_FILE = re.compile(r"<!-- file: (?P<file>[\w.-]+) -->\n\Z")
_SPAN = re.compile(r"(?<!`)`(?!`)([^`\n]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """One fenced block, or the commands in a comment: ``how`` it is tried and why so, the ``file`` it is written to."""

    page: Path
    line: int
    language: str
    text: str
    how: str = "run"
    reason: str = ""
    file: str = ""

    @property
    def name(self) -> str:
        """Where it is."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        mark = _MARK.search(text, 0, match.start())
        how, reason = (mark["how"], mark["rest"].strip(" ;")) if mark else ("run", "")
        file = named["file"] if (named := _FILE.search(text, 0, match.start())) else ""
        found.append(Block(page, _line(text, match.start()), match["language"], match["body"], how, reason, file))
    found += [Block(page, _line(text, each.start()), "sh", each["commands"]) for each in _HIDDEN.finditer(text)]
    return sorted(found, key=lambda block: block.line)


def spans(page: Path) -> list[tuple[int, str]]:
    """Return the texts between backquotes in sentences and tables: line, text."""
    text = prose(page)
    return [(_line(text, match.start()), match[1].replace("\\|", "|")) for match in _SPAN.finditer(text)]


@cache
def prose(page: Path) -> str:
    """A page without its blocks, line by line where it was."""
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text(encoding="utf-8"))


def statements(text: str) -> list[str]:
    """Return shell lines joined with their continuations, without comments on lines of their own."""
    found: list[str] = []
    ends: str | None = None
    joined = False
    for line in text.splitlines():
        if ends is not None or joined:
            found[-1] += f"\n{line}"
        elif not line.strip() or line.lstrip().startswith("#"):
            continue
        else:
            found.append(line)
        if ends is None and (here := re.search(r"<<-?\s*'?(\w+)'?", line)):
            ends = here[1]
        elif ends is not None and line.strip() == ends:
            ends = None
        joined = ends is None and line.endswith("\\")
    return found


def transcript(text: str) -> list[tuple[str, str]]:
    """Return the commands of a console block (after ``$``; ``>`` continues one), each with the output that the page
    shows.
    """
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", "")
        else:
            assert found, f"output before the first command: {line!r}"
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def steps(block: Block) -> list[tuple[str, str]]:
    """The commands of a block with the output that is shown of each."""
    if block.language == "console":
        return transcript(block.text)
    return [(statement, "") for statement in statements(block.text)]


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
