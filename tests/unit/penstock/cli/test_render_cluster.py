"""The cluster's status as tables: nodes, jobs and reservations, also if fields are missing or of another shape."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.render_cluster import cluster_view
from tests.unit.penstock.cli.render_bed import CLUSTER, NOW, printed, promised, values


@pytest.fixture(scope="module")
def whole_cluster() -> str:
    return printed(cluster_view(CLUSTER, now=NOW))


@pytest.mark.parametrize(
    "fact",
    [
        "1 of 2 nodes connected · master 0.1.0 · up 1m33s · tasks 1 placed, 7 ready",
        "memory 1 GiB of 4 GiB reserved · order ejf · forecasts by neighbours",
        "3.5 / 16",
        "8 GiB / 64 GiB",
        "4, 2 GiB",
        "25 %  50 %",
        "2 MiB",
        "away 12s",
        "3 of 12 tasks",
        "it wants 2 GiB",
        " 2      41s ",
        "41 s of service so far",
        "and 3 jobs of other users",
        "m-3",
        "memory: 95 % used",
    ],
)
def test_every_fact_of_the_cluster_is_shown(whole_cluster: str, fact: str) -> None:
    assert fact in whole_cluster


def test_reservations_are_shown_as_they_fall_due() -> None:
    some = [
        promised("late", (7200.5, 7800.5)),
        promised("over", (-100.0, -10.0)),
        promised("now", (-100.0, 600.5), (900.0, 1000.0)),
        promised("gone", dropped="a node was lost"),
    ]
    lines = [line for line in printed(cluster_view({}, some, NOW)).splitlines() if line.startswith("r-")]
    assert [line.split()[1] for line in lines] == ["gone", "now", "late"]
    assert lines[0].split()[3:] == ["dropped", "a", "node", "was", "lost"]
    assert "now, for 10m00s" in lines[1]
    assert "4 × 1 core, 1 GiB" in lines[1]
    assert "in 2h00m, for 10m00s" in lines[2]


@settings(max_examples=20)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(CLUSTER, values)))
def test_any_shape_of_the_cluster_is_shown_somehow(status: dict[str, Any]) -> None:
    assert printed(cluster_view(status))


@settings(max_examples=20)
@given(st.data())
def test_any_values_of_nodes_and_jobs_are_shown_somehow(data: st.DataObject) -> None:
    node = {key: data.draw(values) for key in CLUSTER["nodes"]["beta"]}
    job = {key: data.draw(values) for key in CLUSTER["jobs"]["j-1"]}
    assert printed(cluster_view({"nodes": {"n": node}, "jobs": {"j": job}}))
