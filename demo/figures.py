"""Write the figures of the last demonstration into README.md: ``make demo && .venv/bin/python -m demo.figures``.

``--host`` writes them into docs/demo.md instead, where the figures of ``DEMO=host make demo`` are.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PROJECT = Path(__file__).resolve().parent.parent
_BEGIN, _END = "<!-- figures of the demo: python -m demo.figures writes them -->", "<!-- end of the figures -->"
_BLOCK = re.compile(re.escape(_BEGIN) + r"\n.*?" + re.escape(_END), re.DOTALL)


def block(report: dict[str, Any]) -> str:
    """Return what a page shows of a report: what the demo printed, with date, commit and machine."""
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
    """The command. Exit status 1 and one line for what cannot be read or written."""
    parser = argparse.ArgumentParser(prog="python -m demo.figures", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="where the report is")
    parser.add_argument("--host", action="store_true", help="write into docs/demo.md: figures of DEMO=host")
    options = parser.parse_args(arguments)
    page = project / ("docs/demo.md" if options.host else "README.md")
    try:
        report = json.loads((options.out / "report.json").read_text(encoding="utf-8"))
        text = replaced(page.read_text(encoding="utf-8"), block(report))
        if not options.host:
            shutil.copyfile(options.out / "timeline.png", project / "docs" / "demo-timeline.png")
        page.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"demo.figures: {error}", file=sys.stderr)
        return 1
    except KeyError as error:
        print(f"demo.figures: {options.out}/report.json has no {error}: run `make demo` again", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
