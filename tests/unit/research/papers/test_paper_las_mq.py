"""LAS_MQ's claims that need no trace, and that the others run on any trace of the same form."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from research.papers import las_mq, las_mq_testbed
from research.papers.claims import TRACES, Inputs

_CLAIMS = {claim.name: claim for claim in las_mq.CLAIMS}


def test_figure_1() -> None:
    rows = _CLAIMS["las_mq/fig01"].run(Inputs())
    assert [(row.ours, row.holds) for row in rows] == [("9, 8, 1", True), ("6, 8, 1", True)]


def test_one_size_for_all_halves_the_response_time_of_fair() -> None:
    rows = _CLAIMS["las_mq/fig10-uniform"].run(Inputs())
    assert [(row.ours, row.holds) for row in rows] == [("0.55", True), ("0.50", True), ("1.00", True)]


@pytest.fixture
def heavy(tmp_path: Path) -> Inputs:
    """Return a thousand jobs with sizes of a heavy tail, as SWIM writes them."""
    random = Random(5)
    path = tmp_path / TRACES["swim"]
    path.parent.mkdir()
    sizes = [int(1e6 * random.paretovariate(0.8)) for _ in range(1000)]
    path.write_text("".join(f"job{n}\t{3 * n}\t3\t{size}\t0\t0\n" for n, size in enumerate(sizes)), encoding="utf-8")
    return Inputs(traces=tmp_path)


@pytest.fixture
def of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a twentieth of the jobs of one size, which have a test of their own; each weight is a run of them."""
    responses_s = las_mq_testbed.mean_responses_s

    def of_fewer(name: str, settings: list[dict[str, Any]]) -> list[float]:
        fewer = {"workload.synthetic.jobs": 500} if name == "las_mq/fig10-uniform" else {}
        return responses_s(name, [each | fewer for each in settings])

    monkeypatch.setattr(las_mq_testbed, "mean_responses_s", of_fewer)


@pytest.mark.parametrize("name", [claim.name for claim in las_mq.CLAIMS if claim.needs == "swim"])
@pytest.mark.usefixtures("of_one_size")
def test_claims_on_a_trace_have_a_reason_where_they_do_not_hold(name: str, heavy: Inputs) -> None:
    rows = _CLAIMS[name].run(heavy)
    assert rows
    assert all(row.why for row in rows if not row.holds)


def test_a_heavy_tail_favours_las_mq_over_fair_and_fifo(heavy: Inputs) -> None:
    order = next(row for row in _CLAIMS["las_mq/fig10-heavy-tailed"].run(heavy) if row.what.startswith("order"))
    assert order.ours.endswith("las_mq < fair < fifo")
