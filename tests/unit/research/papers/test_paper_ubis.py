"""The claims of Ursa and UBIS: well formed, and the fastest of them tried."""

from __future__ import annotations

import pytest

from research.papers import ubis, ursa
from research.papers.claims import TRACES, Inputs

CLAIMS = [*ursa.CLAIMS, *ubis.CLAIMS]


def test_claims_are_named_after_their_paper_and_need_only_traces_that_are_known() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert {name.partition("/")[0] for name in names} == {"ursa", "ubis"}
    assert {claim.needs for claim in CLAIMS} <= {"", *TRACES}


def test_a_claim_that_needs_a_trace_reports_its_absence() -> None:
    for claim in CLAIMS:
        if claim.needs:
            with pytest.raises(LookupError, match=claim.needs):
                claim.run(Inputs())


def test_fig_3_of_ubis_holds() -> None:
    (claim,) = (claim for claim in CLAIMS if claim.name == "ubis/fig3")
    rows = claim.run(Inputs())
    assert [row.paper for row in rows] == ["4 t", "3.5 t"]
    assert all(row.holds and not row.why for row in rows)
