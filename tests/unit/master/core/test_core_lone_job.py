"""What one short job alone in the cluster costs the master: each step that can change nothing is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from master.core import MasterSettings
from master.core import events as e
from master.placement.workers import NeedsTable
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, Bed, command


def counted(patch: pytest.MonkeyPatch, counts: Counter[str], of: object, name: str) -> None:
    """Count the calls of a method of an object."""
    method: Callable[..., Any] = getattr(of, name)

    def counting(*args: Any, **more: Any) -> Any:
        counts[name] += 1
        return method(*args, **more)

    patch.setattr(of, name, counting)


def lone_job(b: Bed) -> None:
    """One job from its submission to its end, as an agent reports it, with all rounds that it makes due."""
    b.job("a", "j", at=b.now)
    b.ready("a", command("t"))
    settle(b)
    b.serve(e.Received("a", api.CommandEnded(job="j", task="t", origin="a", ended=EXIT)))
    b.heartbeat("a")
    b.serve(e.Received("a", api.JobEnded(job="j", done=True, use=api.JobUse(job="j", service_s=0.01, last=True))))
    b.heartbeat("a")
    settle(b)


def settle(b: Bed) -> None:
    """Run the rounds that are due."""
    b.now += 0.01
    while b.cluster.wants_round:
        b.round()


def bed(**settings: Any) -> Bed:
    b = Bed(ordering="gittins", **settings)
    b.node("a")
    settle(b)
    return b


def test_a_job_alone_is_ranked_once_to_be_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    b, counts = bed(), Counter[str]()
    lone_job(b)
    counted(monkeypatch, counts, b.cluster.order.ordering, "rank")
    for _ in range(3):
        b.now += 2.0
        lone_job(b)
    assert counts["rank"] == 3, "its place among no others needs no numbers"


def test_the_place_of_a_job_alone_is_explained_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    b, counts = bed(), Counter[str]()
    counted(monkeypatch, counts, b.cluster.order.ordering, "rank")
    b.job("a", "j")
    b.heartbeat("a", jobs=[api.JobUse(job="j", service_s=3.0)])
    b.round(2.0)
    assert not counts["rank"]
    place = b.cluster.order.place_of("j")
    assert (place.rank, place.of) == (1, 1)
    assert place.reason == b.cluster.order.look(b.now).reason("j")
    assert "3.0 s of service so far" in place.reason.said
    b.job("a", "k")
    b.round(2.0)
    assert {b.cluster.order.place_of(job).rank for job in "jk"} == {1, 2}


def test_a_command_alone_is_placed_without_arrays_of_demands_and_without_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b, counts = bed(), Counter[str]()
    counted(monkeypatch, counts, NeedsTable, "__init__")
    counted(monkeypatch, counts, b.cluster.sizes, "probabilities")
    lone_job(b)
    assert not counts
    assert b.decisions_of(api.Assign)[0][1].why.endswith(
        "gittins: the only job, after 0 container-seconds, 1 of 1 task"
    )


def test_an_ordering_that_remembers_ranks_a_job_alone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    b, counts = bed(), Counter[str]()
    b.serve(e.Reconfigured(MasterSettings(gather_s=0.0, ordering="las_mq")))
    counted(monkeypatch, counts, b.cluster.order.ordering, "rank")
    b.job("a", "j")
    b.round(2.0)
    assert counts["rank"] >= 1


def test_a_round_without_waiting_tasks_looks_at_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    b, counts = bed(), Counter[str]()
    lone_job(b)
    counted(monkeypatch, counts, b.cluster.snapshots, "take")
    counted(monkeypatch, counts, b.cluster.order.ordering, "rank")
    for _ in range(3):
        b.heartbeat("a")
        b.round(1.0)
    assert not counts
