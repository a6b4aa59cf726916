"""The links that lead out of this machine, and whether they can be limited; read-only."""

from __future__ import annotations

from dataclasses import dataclass

from agent.network.htb import Htb, default_routes, with_htb
from agent.network.links import leading_out, link_rate


@dataclass(frozen=True, slots=True)
class LinkOut:
    """One link. ``rate_bytes_per_s`` 0: unknown; ``why_not``: why containers cannot be limited there, with remedy."""

    name: str
    rate_bytes_per_s: int
    why_not: str | None = None


def links_out(link_bytes_per_s: int = 0) -> list[LinkOut]:
    """Return the links that lead out.

    Args:
        link_bytes_per_s: the configured capacity of each; 0: the rate that the link reports.
    """

    def look(htb: Htb) -> list[LinkOut]:
        links = htb.links()
        return [
            LinkOut(link.name, link_bytes_per_s or link_rate(link, links), htb.refuses(link))
            for link in leading_out(links, default_routes())
        ]

    return with_htb(look)
