"""Victim and innocent, per resource: *bloat* goes, *chill* lives, and the pressure stays away (as systemd's TEST-55).

A real agent preempts. The tests read frozen containers from the kernel, ends from the agent, reasons from its status.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest

from bench.enforcement.accuracy import filled
from bench.enforcement.bed import Work
from bench.enforcement.guest import slow_directory
from bench.enforcement.network import BYTES_PER_MBIT, SETTINGS, Network
from penstock.model import Choice, EndedBy, Limits, Notice
from tests.kernel.warm_bed import Bed

pytestmark = pytest.mark.timeout(400)
MIB = 1 << 20
#: For so long no other container may be preempted; ``make bench-victims`` watches a minute.
CALM_S = float(os.environ.get("PENSTOCK_CALM_S", "3"))
MEMORY = {"memory_bytes": 384 * MIB, "t_preempt_memory": 0.9, "t_alloc": 2, "t_preempt_cpu": 1.0, "t_preempt_disk": 1.0}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


def preempted(bed: Bed) -> list[dict[str, Any]]:
    return list(bed.status()["preemptions"])


def stays_calm(bed: Bed, *innocents: Work) -> None:
    """Check that no container is preempted from now on, and that the innocent ones run."""
    before = preempted(bed)
    deadline = time.monotonic() + CALM_S
    for _ in itertools.takewhile(lambda _: time.monotonic() < deadline, itertools.count()):
        time.sleep(1)  # nothing is waited for: that nothing happens is the point
        assert preempted(bed) == before, bed.status()["events"]
    for work in innocents:
        assert bed.shown(work)["state"] == "running", bed.shown(work)


def frozen(work: Work) -> bool:
    return work.flat("cgroup.events")["frozen"] == 1


def holding(bed: Bed, mebibytes: int, **spec: Any) -> Work:
    # At the pace of work that computes: faster than the agent looks, the kernel would have to find the victims.
    work = bed.start("hold", mebibytes * MIB, 0.004, memory_bytes=mebibytes * MIB, **spec)
    work.line("held")
    bed.until(lambda: bed.shown(work)["sample"].get("memory_bytes", 0) > mebibytes * MIB)
    return work


def bloating(bed: Bed, mebibytes: int, asks: int = 250, **spec: Any) -> Work:
    """Start a container that grows to its size unless it is stopped.

    Its request makes the node over-allocated beside ``chill``.
    """
    work = bed.start("grow", mebibytes * MIB, opportunistic=True, memory_bytes=asks * MIB, **spec)
    work.line("ready")
    work.tell(0)
    return work


class TestMemory:
    """384 MiB are offered, T_preempt is at 345."""

    def test_the_newest_goes_and_the_innocent_live(self, directory: Path) -> None:
        with Bed(directory, **MEMORY) as bed:
            chill = holding(bed, 150)
            innocent = holding(bed, 60, opportunistic=True)
            bloat = bloating(bed, 190)
            assert bloat.ended().by is EndedBy.PREEMPTED
            (record,) = preempted(bed)
            assert record["container"] == bloat.container.id and record["resource"] == "memory"
            assert "newest" in record["reason"] and "T_preempt" in record["reason"]
            stays_calm(bed, chill, innocent)

    def test_the_largest_goes_where_that_is_the_order(self, directory: Path) -> None:
        with Bed(directory, **MEMORY, preempt_order="largest") as bed:
            large = holding(bed, 120, opportunistic=True)
            small = holding(bed, 40, opportunistic=True)
            chill = holding(bed, 220)
            assert large.ended().by is EndedBy.PREEMPTED
            assert [record["container"] for record in preempted(bed)] == [large.container.id]
            stays_calm(bed, small, chill)

    def test_a_container_that_prefers_preemption_goes_first_and_one_that_avoids_it_last(self, directory: Path) -> None:
        with Bed(directory, **MEMORY) as bed:
            prefers = holding(bed, 60, opportunistic=True, preempt=Choice.PREFER)
            normal = holding(bed, 60, opportunistic=True)
            avoids = holding(bed, 60, opportunistic=True, preempt=Choice.AVOID)
            chill = holding(bed, 190)
            assert prefers.ended().by is EndedBy.PREEMPTED
            assert [record["container"] for record in preempted(bed)] == [prefers.container.id]
            stays_calm(bed, normal, avoids, chill)

    def test_cache_goes_before_work_does(self, directory: Path) -> None:
        """The memory of the opportunistic container is mostly cache: reclaiming it is enough, and no container ends."""
        file = Path("/scratch/victims-cache")
        filled(file, 120 * MIB)
        with file.open("rb") as written:  # the kernel charges cache to its reader, not to its writer
            os.posix_fadvise(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with Bed(directory, **MEMORY) as bed:
            keeper = bed.start("keep", file, opportunistic=True, memory_bytes=150 * MIB)
            keeper.line("held")
            bed.until(lambda: bed.shown(keeper)["sample"].get("memory_bytes", 0) > 115 * MIB)
            chill = holding(bed, 236)
            bed.until(lambda: bool(preempted(bed)))
            records = preempted(bed)
            assert {(record["container"], record["action"]) for record in records} == {
                (keeper.container.id, "reclaimed")
            }
            bed.until(lambda: bed.shown(keeper)["sample"]["memory_bytes"] < 100 * MIB)
            stays_calm(bed, chill, keeper)
        file.unlink()

    def test_notice_comes_before_the_end(self, directory: Path) -> None:
        with Bed(directory, **MEMORY) as bed:
            chill = holding(bed, 150)
            bloat = bloating(bed, 205, asks=250, notice=Notice(signal=15, grace_s=3.0))
            noticed = float(bloat.line("notice").split()[1])
            ended = bloat.ended()
            took = time.monotonic() - noticed
            assert ended.by is EndedBy.PREEMPTED
            assert took > 2.5, f"its grace was {took} s"
            stays_calm(bed, chill)

    def test_a_dry_run_preempts_no_container(self, directory: Path) -> None:
        with Bed(directory, **MEMORY, preempt_dry_run=True) as bed:
            chill = holding(bed, 150)
            bloat = bloating(bed, 205, asks=250)
            bed.until(lambda: bool(preempted(bed)))
            assert {record["action"] for record in preempted(bed)} == {"dry run"}
            assert [bed.shown(work)["state"] for work in (chill, bloat)] == ["running", "running"]


class TestPaused:
    """CPU, disk, network: a container in the way is frozen, and goes on when there is room again."""

    @pytest.mark.measured
    def test_processors(self, directory: Path) -> None:
        settings = {"t_preempt_cpu": 0.85, "t_alloc": 2, "preempt_cooldown_s": 2}
        with Bed(directory, **settings) as bed:
            chill = bed.start("spin", "cpu", cpu_cores=1.2, limits=Limits(cpu_cores=1.0)).ready()
            innocent = bed.start("spin", "cpu", cpu_cores=0.3, opportunistic=True, limits=Limits(cpu_cores=0.3))
            innocent.ready()
            bloat = bed.start("spin", "cpu", cpu_cores=1.0, opportunistic=True).ready()
            paused_then_resumed(bed, "cpu", chill, innocent, bloat)

    @pytest.mark.measured
    def test_disk(self, directory: Path) -> None:
        slow = slow_directory()
        file = slow / "victims"
        with file.open("wb") as made:
            made.write(bytes(64 * MIB))
            made.flush()
        settings = {"t_preempt_disk": 0.9, "t_preempt_cpu": 1.0, "t_alloc": 2, "preempt_cooldown_s": CALM_S + 5}
        with Bed(directory, **settings) as bed:
            chill = bed.start("read", file, 131072, 8_000_000, cpu_cores=0.2).ready()
            innocent = bed.start("read", file, 131072, 2_000_000, opportunistic=True).ready()
            bloat = bed.start("read", file, 262144, opportunistic=True).ready()
            paused_then_resumed(bed, "disk", chill, innocent, bloat)

    @pytest.mark.measured
    def test_network(self, directory: Path) -> None:
        """A link of 100 Mbit/s: 40 for the promised container, 5 for the innocent one, and a third takes the rest."""
        settings = {**SETTINGS, "preempt_dry_run": False, "t_preempt_network": 0.9, "preempt_cooldown_s": CALM_S + 5}
        with contextlib.closing(Network(directory, **settings)) as network:

            def sender(mbit: int | None, **spec: Any) -> Work:
                rate = mbit and mbit * BYTES_PER_MBIT
                work = network.holder(limits=Limits(network_egress_bytes_per_s=rate), **spec)
                senders.callback(network.spaces.send(work.cgroup).stop)
                return work

            with contextlib.ExitStack() as senders:
                chill = sender(40)
                innocent = sender(5, opportunistic=True)
                bloat = sender(None, opportunistic=True)
                paused_then_resumed(network.bed, "network", chill, innocent, bloat)
                network.bed.clear()


def paused_then_resumed(bed: Bed, resource: str, chill: Work, innocent: Work, bloat: Work) -> None:
    """Check that the newest is frozen until regular work is gone, and that no container ends."""
    bed.until(lambda: frozen(bloat))
    (record,) = preempted(bed)
    assert (record["container"], record["resource"], record["action"]) == (bloat.container.id, resource, "paused")
    assert bed.shown(bloat)["state"] == "paused"
    stays_calm(bed, chill, innocent)
    assert not frozen(chill) and not frozen(innocent) and frozen(bloat)
    chill.container.kill()
    bed.until(lambda: not frozen(bloat))
    bed.until(lambda: bed.shown(bloat)["state"] == "running")
    assert any(event.get("container") == bloat.container.id for event in bed.status()["events"])
