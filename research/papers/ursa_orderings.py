"""Ursa §5.2, Table 6: the effects of ordering jobs in placement (JO) and monotasks in the queues (MO)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from research.papers.claims import Inputs, Row
from research.papers.rows import change, row
from research.papers.ursa_tpch import tpch
from simulator.report import Report

_SRJF: dict[str, Any] = {"policy.ordering": "srjf"}
#: Without JO: the ordering does not add to the scores of stages.
_NO_JO: dict[str, dict[str, Any]] = {"ejf": {"policy.ejf_weight": 0.0}, "srjf": {"policy.srjf_weight": 0.0}}
#: Without MO: the ordering does not order the queues, and a node's monotasks start in the order of arrival.
_NO_MO: dict[str, Any] = {"cluster.fifo_queues": True}
#: With this EPT more monotasks wait in the queues.
_LONG_EPT: dict[str, Any] = {"policy.ept_s": 20.0}
_QUEUES = (
    "With an EPT of 1 s placement leaves few monotasks waiting in the queues, so that placement decides "
    "the order. The longer EPT is, the more the queues decide: see the line with 20 s. The paper does not "
    "state its EPT."
)


def table6(inputs: Inputs) -> list[Row]:
    """Try Table 6: mean completion and makespan of JO, MO, and both."""
    settings: list[dict[str, Any]] = []
    for base, name in (({}, "ejf"), (_SRJF, "srjf")):
        settings += [base | _NO_MO, base | _NO_JO[name], base]
    settings += [_LONG_EPT | _NO_MO, _LONG_EPT | _NO_JO["ejf"], _LONG_EPT]
    reports = tpch(inputs, *settings)
    rows = []
    for name, (jo, mo, both), responses, makespans in (
        ("EJF", reports[:3], "373.08, 351.73, 338.67 s", "630.33, 615.33, 613 s"),
        ("SRJF", reports[3:6], "376.67, 346.49, 328.31 s", "623, 629.33, 635.67 s"),
    ):
        mean_s = [report.mean_response_s for report in (jo, mo, both)]
        ours = ", ".join(f"{time_s:.1f}" for time_s in mean_s) + " s"
        rows += [
            row(
                what=f"mean completion, {name}: JO, MO, both; both together are best",
                paper=responses,
                ours=ours,
                holds=mean_s[2] < min(mean_s[:2]),
                why=_QUEUES,
            ),
            row(
                what=f"mean completion, {name}: MO does more than JO",
                paper=responses,
                ours=ours,
                holds=mean_s[1] < mean_s[0],
                why=_QUEUES,
            ),
            row(
                what=f"makespan, {name}: JO, MO, both within 5 % of each other",
                paper=makespans,
                ours=", ".join(f"{report.makespan_s:.1f}" for report in (jo, mo, both)) + " s",
                holds=max(r.makespan_s for r in (jo, mo, both)) <= 1.05 * min(r.makespan_s for r in (jo, mo, both)),
                why="Without the order of jobs in placement all jobs progress side by side; none is alone at the end.",
            ),
        ]
    return [*rows, _queues_matter(reports[6:])]


def _queues_matter(reports: Sequence[Report]) -> Row:
    jo_s, mo_s, both_s = (report.mean_response_s for report in reports)
    return row(
        what="mean completion, EJF, with an EPT of 20 s: JO, MO, both; MO adds more than 1 % to JO",
        paper="373.08, 351.73, 338.67 s (−9.2 %)",
        ours=f"{jo_s:.1f}, {mo_s:.1f}, {both_s:.1f} s ({change(both_s, jo_s)})",
        holds=both_s < 0.99 * jo_s,
        why=_QUEUES,
    )
