"""Writes the tables of keys in docs/configuration.md (between the markers) from the declarations of both daemons.

python docs/make_configuration.py            # rewrite
python docs/make_configuration.py --check    # exit status 1 if it is out of date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

from agent.config import AgentConfig
from master.config import MasterConfig
from penstock.config.declaration import keys

PAGE = Path(__file__).with_name("configuration.md")
_TABLES: dict[str, type[msgspec.Struct]] = {"agent": AgentConfig, "master": MasterConfig}


def updated(page: str) -> str:
    """Return the page with its tables renewed."""
    for name, of in _TABLES.items():
        begin, end = f"<!-- {name}: written by docs/make_configuration.py -->", f"<!-- end of {name} -->"
        found = re.search(re.escape(begin) + ".*?" + re.escape(end), page, re.DOTALL)
        if found is None:
            raise SystemExit(f"{PAGE}: no markers for {name}")
        page = f"{page[: found.start()]}{begin}\n{table(of)}\n{end}{page[found.end() :]}"
    return page


def table(of: type[msgspec.Struct]) -> str:
    """Return every key of a daemon as a Markdown table."""
    rows = ["| key | default | SIGHUP | |", "|---|---|---|---|"]
    for key in keys(of):
        what = key.description.replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| `{key.name}` | `{key.default}` | {'yes' if key.live else ''} | {what} |")
    return "\n".join(rows)


def main() -> int:
    """Run the command; return exit status 1 if --check finds a difference."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = updated(page)
    if "--check" in sys.argv[1:]:
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
