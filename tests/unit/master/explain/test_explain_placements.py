"""Placements other than Algorithm 1, from the setting to the decision, and from the record to the explanation."""

from __future__ import annotations

import msgspec
import pytest

from master.explain.recording import read, record
from master.explain.replay import explained, text
from master.explain.why import JobExplainer
from penstock.model import KindAmounts, TaskRequest
from tests.unit.master.cluster_bed import MB, bed, task

PLACEMENTS = ("ursa", "tetris", "tetris2", "capacity")


def reading(name: str) -> TaskRequest:
    """A second of a core, and a second of a link."""
    return TaskRequest(task=name, usage=KindAmounts(cpu=50.0 * MB, network=100.0 * MB))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_recorded_round_decides_as_the_live_one(placement: str) -> None:
    b = bed("a", "b", placement=placement, stage_aware=False)
    b.job("a")
    b.ready("a", *[task(f"t{n}", memory=50 * (n + 1), cpu=20) for n in range(5)])
    assert len(b.round()) == 5
    b.ready("a", *[task(f"u{n}", memory=30, cpu=10) for n in range(6)])
    b.ready("a", task("large", memory=2000))
    recorded = read(msgspec.json.encode(record(b.cluster, b.now)), "it")
    said = explained(recorded)
    live = b.round()
    assert sorted((decision["task"], decision["node"]) for decision in said["decisions"]) == sorted(live)
    assert live
    assert all(decision["why"].startswith(f"{placement}: ") for decision in said["decisions"])
    assert "Left of stage s of j" in text(said)
    assert JobExplainer.of(b.cluster).document("j", b.now).placement == said["placement"] == placement


def test_a_task_keeps_its_peaks_until_it_ends_and_only_tetris_minds_the_network() -> None:
    """A task's life is two seconds, so its peak is twice 50 MB/s: the whole link."""
    placed = {}
    for placement in PLACEMENTS:
        b = bed("a", placement=placement, ept_s=10.0)
        b.job("a")
        b.ready("a", *[reading(f"t{n}") for n in range(4)])
        first = len(b.round())
        b.heartbeat("a")  # nothing runs at the moment
        placed[placement] = first, len(b.round())
    assert placed == {"ursa": (4, 0), "tetris": (1, 0), "tetris2": (4, 0), "capacity": (4, 0)}


def test_the_explanation_of_a_waiting_job_has_the_reserved_resources() -> None:
    b = bed("a", placement="tetris")
    b.job("a")
    b.ready("a", *[reading(f"t{n}") for n in range(2)])
    assert len(b.round()) == 1
    document = JobExplainer.of(b.cluster).document("j", b.now)
    assert document.stages[0].lacks == {"unreserved network bandwidth": 1}
    assert "of 1 node 1 lacks unreserved network bandwidth" in document.waits
