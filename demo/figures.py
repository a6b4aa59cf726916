"""Write the figures of the last demonstration into README.md: ``make demo && .venv/bin/python -m demo.figures``.

``--host`` writes them into docs/benchmarks/demo.md instead, where the figures of ``DEMO=host make demo`` are.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PROJECT = Path(__file__).resolve().parent.parent
_BEGIN, _END = "<!-- figures of the demo: python -m demo.figures writes them -->", "<!-- end of the figures -->"
_BLOCK = re.compile(re.escape(_BEGIN) + r"\n.*?" + re.escape(_END), re.DOTALL)


def block(report: dict[str, Any]) -> str:
    """Return a report as a page shows it: the demo's output, with date, commit and machine."""
    plan = report["plan"]
    lines = "\n".join(line.rstrip() for line in report["printed"]).strip("\n")
    return (
        f"{_BEGIN}\n"
        f"What it printed on {report['date']} at commit {report['commit'] or 'unknown'}\n"
        f"(processors: {plan['cores']:g}; text: {report['input_bytes'] / 1e6:.0f} MB; {report['machine']}):\n\n"
        f"```text\n{lines}\n```\n{_END}"
    )


def replaced(page: str, written: str) -> str:
    """Return the page with its block of figures replaced.

    Raises:
        ValueError: the page has no such block, or several.
    """
    made, count = _BLOCK.subn(lambda _: written, page)
    if count != 1:
        raise ValueError(f"{count} blocks begin with {_BEGIN}, one is needed")
    return made


def main(arguments: Sequence[str], project: Path = _PROJECT) -> int:
    """Run the command. Exit status 1 and one line for a file that cannot be read or written."""
    parser = argparse.ArgumentParser(prog="python -m demo.figures", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="where the report is")
    parser.add_argument("--host", action="store_true", help="write into docs/benchmarks/demo.md: figures of DEMO=host")
    options = parser.parse_args(arguments)
    page = project / ("docs/benchmarks/demo.md" if options.host else "README.md")
    try:
        written = _of(options.out / "report.json")
        text = replaced(page.read_text(encoding="utf-8"), written)
        if not options.host:
            picture = _read(options.out / "timeline.png")
            (project / "docs" / "demo-timeline.png").write_bytes(picture)
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"demo.figures: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"demo.figures: {error}", file=sys.stderr)
        return 1
    return 0


def _of(path: Path) -> str:
    """Return the block of a report.

    Raises:
        ValueError: there is none, or its format is not the demo's; the line names the option and the remedy.
    """
    try:
        return block(json.loads(_read(path)))
    except (KeyError, TypeError) as error:
        fault = f"has no {error}" if isinstance(error, KeyError) else "is not what the demo writes"
    except ValueError as error:
        if not isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
            raise
        fault = f"is no JSON: {error}"
    raise ValueError(f"--out: {path} {fault}; run `make demo` again")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        remedy = "run `make demo` first, or name the directory with its report"
        raise ValueError(f"--out: {path}: {error.strerror}; {remedy}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
