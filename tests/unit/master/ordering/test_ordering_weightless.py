"""An ordering that adds nothing to the scores of stages still orders the queues (Ursa §5.2, Table 6: "MO")."""

from __future__ import annotations

import pytest

from master.ordering import ClusterView, JobView, OrderingSettings, ordering_of

JOBS = [
    JobView("early", submitted_at=0.0, remaining=(9.0, 0.0, 0.0), needs=9.0),
    JobView("late", submitted_at=5.0, remaining=(1.0, 0.0, 0.0), needs=1.0),
]


@pytest.mark.parametrize(("ordering", "order"), [("ejf", ["early", "late"]), ("srjf", ["late", "early"])])
def test_without_weight_placement_does_not_see_the_order_and_the_queues_do(ordering: str, order: list[str]) -> None:
    ranking = ordering_of(OrderingSettings(ordering, ejf_weight=0.0, srjf_weight=0.0)).rank(JOBS, ClusterView(now=9.0))
    assert ranking.order() == order
    assert ranking.key("early", 1.5) == ranking.key("late", 1.5) == (1.5,)
