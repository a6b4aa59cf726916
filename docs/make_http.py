"""Writes what the pages say of HTTP (between the markers): the operations of both daemons, and their JSON documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from agent import http_documents as of_agent
from agent.http import status_site as site_of_agent
from docs import make_protocol
from docs.make_protocol import collect, prose, type_name
from master import http_documents as of_master
from master.http import status_site as site_of_master
from master.http_reservations import ReservationSite
from master.profiles import Profiles
from penstock.openapi import Access, Operation

DOCS = Path(__file__).parent
#: The documents, by page and mark: each is followed by the types it is made of.
DOCUMENTS: dict[str, dict[str, type[msgspec.Struct]]] = {
    "protocol.md": {
        "status": of_agent.Status, "profiles": of_master.ProfileEntry, "profile": of_master.ApplicationProfile,
    },
    "master-status.md": {"status": of_master.Status, "explanation": of_master.Explanation},
    "jobs.md": {"explained": of_master.JobExplained, "explained-ended": of_master.EndedJobExplained},
}  # fmt: skip
PAGES = ("http.md", *DOCUMENTS)


def _served(nothing: Any = None) -> tuple[list[Operation], list[Operation]]:
    """The operations of the agent and of the master, whose parts are not needed to describe them."""
    more = [*Profiles(nothing).routes(), *ReservationSite(nothing, nothing).routes()]
    master = site_of_master(nothing, nothing, nothing, nothing, CollectorRegistry(), more)
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


def operations() -> Iterator[str]:
    """Tables of the operations."""
    agent, master = ([_row(each) for each in some] for some in _served())
    for title, rows in (
        ("both daemons", [row for row in agent if row in master]),
        ("the agent", [row for row in agent if row not in master]),
        ("the master", [row for row in master if row not in agent]),
    ):
        yield from ("", f"| {title} | answer |", "|---|---|", *rows)


def document(top: type[msgspec.Struct], page: str, page_of: dict[type, str]) -> Iterator[str]:
    """A document and the types it is made of, except those of ``page_of`` (type → page), which learns of them; of a
    document that extends one of these, the keys that it adds.
    """
    parts: dict[type, None] = {top: None}
    for field in msgspec.structs.fields(top):
        collect(field.type, parts)
    fresh = [part for part in parts if part not in page_of]
    page_of |= dict.fromkeys(fresh, page)
    for part in fresh:
        yield from ([] if part is top else ["", f"### {part.__name__}"])
        yield from ("", prose(part))
        if issubclass(part, msgspec.Struct):
            bases = part.__bases__ if part is top else ()
            inherited = {key for base in bases if base in page_of for key in base.__struct_fields__}
            own = [one for one in msgspec.structs.fields(part) if one.name not in inherited]
            rows = [f"| `{one.encode_name}` | {type_name(one.type)} |" for one in own]
            yield from ("", "| key | type |", "|---|---|", *rows)
        else:
            yield from ("", make_protocol.values(part))


def _in_json(line: str, page: str, page_of: dict[type, str]) -> str:
    """A line with JSON's words, and with links to types on other pages."""
    line = re.sub(r"\bmap\b", "object", re.sub(r"\bnil\b", "null", line))
    here = {part.__name__.lower() for part, of in page_of.items() if of == page}
    elsewhere = {part.__name__.lower(): of for part, of in page_of.items()}
    return re.sub(r"\]\(#(\w+)\)", lambda to: to[0] if to[1] in here else f"]({elsewhere[to[1]]}#{to[1]})", line)


def updated() -> dict[str, str]:
    """The pages with their generated parts renewed."""
    page_of = dict.fromkeys(make_protocol.parts(), "protocol.md")
    pages = {name: (DOCS / name).read_text(encoding="utf-8") for name in PAGES}
    pages["http.md"] = _replaced(pages["http.md"], "operations", operations())
    for name, documents in DOCUMENTS.items():
        for mark, top in documents.items():
            lines = [_in_json(line, name, page_of) for line in list(document(top, name, page_of))]
            pages[name] = _replaced(pages[name], mark, iter(lines))
    return pages


def _replaced(page: str, mark: str, lines: Iterator[str]) -> str:
    begin, end = f"<!-- {mark}: written by docs/make_http.py -->", f"<!-- end of {mark} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"docs: the marks of {mark} are missing")
    return "\n".join([before + begin, *lines, "", end + after])


if __name__ == "__main__":
    for name, page in updated().items():
        (DOCS / name).write_text(page, encoding="utf-8")
