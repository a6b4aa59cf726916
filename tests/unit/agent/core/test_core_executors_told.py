"""Reports of a node's executors: to the master with heartbeats, to frameworks, and in the status."""

from __future__ import annotations

import msgspec

from agent.core import instructions as i
from agent.core.executors import HEARTBEAT_BYTES
from penstock.model import Profile
from penstock.wire.agent_api import TaskStuck
from penstock.wire.master_api import TellPlaced, TellStages, TellStuck
from tests.fakes.node_bed import GIB, MIB, status_of
from tests.unit.agent.core.executors_bed import JOB, Bed, cores


def test_availability_is_reported_first_and_then_when_it_changed() -> None:
    bed = Bed(link_bytes_per_s=10 * MIB)
    bed.node.link_opens()
    told = bed.availability()
    assert told.capacity == (4000, 0, 10 * 1024, 4096)
    assert (told.slot_s, told.slots, told.elapsed_s) == (3.0, [told.capacity], 0.0)
    assert bed.beat().load.availability is None
    bed.assign("a", cores(1, 2, 3, 3, memory_bytes=GIB))
    told = bed.availability()
    assert told.slots[:3] == [(3000, 0, 10240, 3072), (2000, 0, 10240, 3072), (1000, 0, 10240, 3072)]
    assert told.slots[-1] == told.capacity, "it is predicted to end"
    bed.now += 1.0
    assert bed.beat().load.availability is None, "time that passes is no news"
    bed.launch(cpu_cores=0.5)
    told = bed.availability()
    assert [slot[0] for slot in told.slots] == [1500, 500, 500, 500, 3500], "of both slots that it overlaps the least"
    bed.node.link_opens()
    assert bed.availability() == told


def test_free_resources_are_rounded_down(bed: Bed) -> None:
    bed.launch(cpu_cores=0.0001, memory_bytes=1)
    assert bed.availability().slots == [(3999, 0, 0, 4095)]


def test_a_reservation_of_the_peak_is_for_as_long_as_it_takes(bed: Bed) -> None:
    bed.assign("a", cores(3, memory_bytes=GIB))
    assert bed.availability().slots == [(1000, 0, 0, 3072)]


def test_slots_are_reported_with_heartbeats_and_the_tail_with_the_end(bed: Bed) -> None:
    bed.assign("a", cores(2, 2))
    bed.now += 0.5
    bed.started("a")
    bed.sample(4, cores=2.0, disk_bytes_per_s=1024.0)
    (use,) = bed.beat().executors
    assert (use.job, use.task, use.first, use.mean) == (JOB, "a", 0, [(2000, 1, 0, 100)])
    bed.sample(1)
    bed.exit(bed.container("a"))
    assert bed.node.executors.surrogate.owes
    (use,) = bed.beat().executors
    assert (use.first, len(use.mean), use.ended) == (1, 1, True)
    assert bed.beat().executors == []


def test_a_heartbeat_of_twenty_executors_with_half_an_hour_ahead_is_small() -> None:
    """Elasecutor's reports are ≤ 12 KB. Parts without room beside a long availability come with the next one."""
    bed = Bed(disk_bytes_per_s=2 * GIB, link_bytes_per_s=GIB)
    names = [f"executor-{number}" for number in range(20)]
    for number, name in enumerate(names):
        bed.now += 0.13
        values = tuple(0.01 + ((slot * 7 + number) % 19) / 100 for slot in range(600))
        assert bed.assign(name, Profile(cpu_cores=values, memory_bytes=(100 * MIB,))) == []
        bed.started(name)
    bed.beat()
    a_lot = {"memory_bytes": 100 * GIB, "disk_bytes_per_s": 1e9, "network_send_bytes_per_s": 1e9}  # long on the wire
    bed.sample(200, cores=70.0, **a_lot)
    bed.node.link_opens()
    beats = [bed.beat() for _ in range(40)]
    sizes = [len(msgspec.msgpack.encode(beat)) for beat in beats]
    assert max(sizes) <= HEARTBEAT_BYTES
    assert len(beats[0].load.availability.slots) > 400  # type: ignore[union-attr]
    told = {name: sum(len(use.mean) for beat in beats for use in beat.executors if use.task == name) for name in names}
    assert set(told.values()) == {66, 67}, "all that was complete, in as many heartbeats as it takes"
    bed.sample(3, cores=70.0, **a_lot)
    (size, beat) = max((len(msgspec.msgpack.encode(beat)), beat) for beat in [bed.beat()])
    assert len(beat.executors) == 20 and size <= HEARTBEAT_BYTES // 2


def test_stages_end_in_the_recording_and_only_of_their_job(bed: Bed) -> None:
    bed.assign("a", cores(1, 1, 1, 1, stages=(2, 4)))
    bed.started("a")
    bed.sample(6)
    assert bed.decide(TellStages(job=JOB, ended=1), TellStages(job=JOB, ended=1)) == []
    assert [use.stages for use in bed.beat().executors] == [[2]]
    assert bed.decide(TellStages(job=JOB, ended=2)) == []
    (use,) = bed.beat().executors
    assert (use.stages, use.mean) == ([2, 3], []), "a stage that ended is told though no slot has"


def test_stages_that_ended_before_it_began_are_not_its_own(bed: Bed) -> None:
    """The master reports how many there were before it assigns the first of a job's executors."""
    assert bed.decide(TellStages(job=JOB, ended=2)) == []
    bed.assign("a", cores(1, 1, 1, 1, stages=(2, 4)))
    bed.started("a")
    bed.sample(3)
    assert bed.decide(TellStages(job=JOB, ended=3)) == []
    (use,) = bed.beat().executors
    assert use.stages == [1]


def test_its_framework_gets_the_report_of_a_stuck_executor(bed: Bed) -> None:
    job = bed.register()
    stuck = TellStuck(job=job, task="a", helper="b", node="m")
    assert bed.decide(TellPlaced(job=job, task="a", node="n"), stuck) == []
    (told,) = [one for one in bed.done if isinstance(one, i.Notify) and isinstance(one.params, TaskStuck)]
    assert (told.session, told.params) == (1, TaskStuck(job=job, task="a", helper="b", node="m"))


def test_the_status_has_the_stage_of_an_executor(bed: Bed) -> None:
    bed.assign("a", cores(1, 2, 3, 3))
    bed.started("a")
    bed.launch()
    executor, other = (one.executor for one in status_of(bed.node).containers)
    assert other is None and executor is not None
    assert (executor.application, executor.run, executor.slots) == ("sort", "monday", 4)
    assert (executor.behind, executor.stuck, executor.reprovisioned) == (0.0, False, 0)
