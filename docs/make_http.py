"""Writes the tables of docs/http.md (between the markers) from the operations of both daemons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from agent.http import status_site as site_of_agent
from master.http import status_site as site_of_master
from master.http_reservations import ReservationSite
from master.profiles import Profiles
from penstock.openapi import Access, Operation

PAGE = Path(__file__).with_name("http.md")
BEGIN, END = "<!-- operations: written by docs/make_http.py -->", "<!-- end of operations -->"


def _served(nothing: Any = None) -> tuple[list[Operation], list[Operation]]:
    """The operations of the agent and of the master, whose parts are not needed to describe them."""
    more = [*Profiles(nothing).routes(), *ReservationSite(nothing, nothing).routes()]
    master = site_of_master(nothing, nothing, CollectorRegistry(), more)
    return site_of_agent(nothing, nothing).operations(Access()), master.operations(Access())


def _row(each: Operation) -> str:
    fields = msgspec.structs.fields(each.query) if each.query is not None else ()
    query = f" `?{'&'.join(f'{one.encode_name}=' for one in fields)}`" if fields else ""
    cells = [f"[{each.summary}]({each.page})" if each.page else each.summary]
    if each.changes:
        cells.append("Needs the token.")
    if each.body is not None:
        cells.append(f"Body: {', '.join(f'`{one.encode_name}`' for one in msgspec.structs.fields(each.body))}.")
    cells += [f"{status}: {why}" for status, why in sorted(each.faults.items())]
    return f"| `{each.method} {each.shown_path}`{query} | {' '.join(cells)} |"


def updated(page: str) -> str:
    """The page with its tables renewed."""
    agent, master = ([_row(each) for each in some] for some in _served())
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{PAGE}: the marks of the operations are missing")
    lines = [before + BEGIN]
    for title, rows in (
        ("both daemons", [row for row in agent if row in master]),
        ("the agent", [row for row in agent if row not in master]),
        ("the master", [row for row in master if row not in agent]),
    ):
        lines += ["", f"| {title} | answer |", "|---|---|", *rows]
    return "\n".join([*lines, "", END + after])


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
