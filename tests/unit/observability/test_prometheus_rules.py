"""The test's own eyes: planted faults in metrics and expressions are found, and correct ones are not."""

from __future__ import annotations

import pytest

from tests.prometheus import ExpressionError, faults, used

GOOD = """# HELP penstock_slots Slots.
# TYPE penstock_slots gauge
penstock_slots{kind="cpu"} 2.0
# HELP penstock_grants_total Grants.
# TYPE penstock_grants_total counter
penstock_grants_total{kind="cpu"} 7.0
# HELP penstock_wait_seconds Waits.
# TYPE penstock_wait_seconds histogram
penstock_wait_seconds_bucket{le="1.0"} 1.0
penstock_wait_seconds_bucket{le="+Inf"} 1.0
penstock_wait_seconds_count 1.0
penstock_wait_seconds_sum 0.5
"""


def test_correct_metrics_are_not_found() -> None:
    assert faults(GOOD) == []


@pytest.mark.parametrize(
    ("is_", "was", "why"),
    [
        ("# HELP penstock_slots Slots.\n", "", "no HELP"),
        ("# TYPE penstock_slots gauge\n", "", "no TYPE"),
        ("penstock_slots", "penstock_Slots", "snake_case"),
        ("penstock_slots", "other_slots", "begin with penstock_"),
        ("penstock_slots", "penstock_slots_total", "only counters end"),
        ("penstock_slots", "penstock_slots_count", "only histograms"),
        ("penstock_slots", "penstock_slots_gauge", "type is in the name"),
        ("penstock_wait_seconds", "penstock_wait_ms", "abbreviation"),
        ("penstock_wait_seconds", "penstock_wait_milliseconds", "no base unit"),
        ('kind="cpu"} 2', 'le="cpu"} 2', "for histograms"),
        ('kind="cpu"} 2', 'Kind="cpu"} 2', "label Kind"),
        ('penstock_slots{kind="cpu"} 2.0\n', 'penstock_slots{kind="cpu"} 2.0\n' * 2, "twice"),
    ],
)
def test_a_planted_fault_is_found(is_: str, was: str, why: str) -> None:
    assert GOOD.count(is_)
    assert any(why in fault for fault in faults(GOOD.replace(is_, was)))


def test_the_names_in_an_expression() -> None:
    found = used(
        'sum by (kind, class) (rate(a_total{kind=~"cpu|disk", i="$x"}[5m])) / on (kind) group_left max(b) > 1.5e3'
    )
    assert found.metrics == {"a_total": {"kind": {"cpu|disk"}, "i": {"$x"}}, "b": {}}
    assert found.grouped == {"kind", "class"}
    found = used("histogram_quantile(0.99, sum(rate(w_bucket[$__rate_interval])) by (le)) unless c offset 1h")
    assert (set(found.metrics), found.grouped) == ({"w_bucket", "c"}, {"le"})


@pytest.mark.parametrize("wrong", ["sum(a", "a)", "rates(a[5m])", "a{b}", "a{b=1}", "a ! b", "1 + 2", "a{b='c'"])
def test_an_invalid_expression_is_found(wrong: str) -> None:
    with pytest.raises(ExpressionError):
        used(wrong)
