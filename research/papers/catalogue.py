"""The catalogue of all claims, by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from penstock.model.near_names import did_you_mean
from research.papers.claims import Claim

#: The module of a paper, or of all of them → its title, in the order of the page.
PAPERS = {
    "ursa": "Ursa (EuroSys'20)",
    "elasecutor": "Elasecutor (ToN'21)",
    "ubis": "UBIS",
    "las_mq": "LAS_MQ (TCC'19)",
    "rayon": "Rayon (MSR-TR-2013-108)",
    "together": "All papers together, against each alone (no paper has such figures)",
}

#: The claims whose runs took longest in measurements: they begin first. The results do not depend on this order.
LONGEST = (
    "ubis/makespan",
    "ursa/setting1",
    "ursa/setting2",
    "las_mq/testbed-50s",
    "las_mq/testbed-80s",
    "ursa/deep",
    "rayon/sla",
    "rayon/over-reservation",
)


def rank(name: str) -> int:
    """Return the rank of a claim's runs among runs that wait for a core; the smallest begins first."""
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def claims_of(paper: str) -> list[Claim]:
    """Return the claims of one paper."""
    found: list[Claim] = import_module(f"research.papers.{paper}").CLAIMS
    return found


def all_claims() -> list[Claim]:
    """Return the claims of every paper, in the order of the page."""
    return [claim for paper in PAPERS for claim in claims_of(paper)]


def chosen(names: Sequence[str]) -> list[Claim]:
    """Return the claims of these names. A paper's name selects all of its claims, an empty list selects every claim.

    Raises:
        LookupError: a name is unknown; the one-line message gives the nearest known name.
    """
    claims = all_claims()
    if not names:
        return claims
    known = [*PAPERS, *(claim.name for claim in claims)]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, "`python -m research --list` shows them all")
            raise LookupError(f"unknown claim {name!r}; {hint}")
    return [claim for claim in claims if claim.name in names or claim.name.partition("/")[0] in names]
