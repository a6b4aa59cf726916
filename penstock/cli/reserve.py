"""``penstock reserve``: reserve the cluster's resources ahead of time; accepted or refused at once (Rayon)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.cli import arguments
from penstock.cli.errors import usage_error
from penstock.cli.reservations import show
from penstock.cli.session import asked

_EXAMPLE = """EXPRESSION is RDL, as text or (from a file) JSON; docs/reservations.md describes all of it:
  atom(<2GB,1core>, 1, 10, 5min, 2h)    at each moment none or 1 to 10 bundles, each for at least 5 min,
                                        together at least 2 h of a bundle
  window(…, +1h, 2026-12-24T06:00:00Z)  within these times
  any(…, …)  all(…, …)  order(…, …)     one of them, all of them, one after the other
  … every 24h                           again each day
Submit a job to a reservation with `penstock submit --reservation ID`."""


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser("reserve", "Reserve resources ahead of time; accepted or refused at once.", _EXAMPLE)
    parser.add_argument("expression", metavar="EXPRESSION", help="the request; @FILE: read it from a file")
    parser.add_argument("--name", default="", help="a name for display")
    parser.add_argument("--update", metavar="ID", default="", help="replace the request of reservation ID")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    options = parser.parse_args(argv)
    if options.update and options.name:
        raise usage_error("--name cannot be changed; leave it out with --update")
    rdl = _read(options.expression)
    made = asked(
        "reserve",
        lambda agent: (
            agent.update_reservation(options.update, rdl) if options.update else agent.reserve(rdl, options.name)
        ),
        named="reservation",
    )
    show([made], as_json=options.json)
    return 0


def _read(said: str) -> str | dict[str, Any]:
    """Return the expression, or the content of the file that it names.

    Raises:
        CommandError: the file cannot be read; the message names it.
    """
    if not said.startswith("@"):
        return said
    path = Path(said[1:])
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not text"
        raise usage_error(f"{path}: {why}") from None
    if not text.startswith("{"):
        return text
    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise usage_error(f"{path}: not JSON: {error}; correct it, or write the expression as RDL") from None
