"""A job that comes has the processor time of the others read again: ranks go by what was used until now."""

from __future__ import annotations

import pytest

from agent.core import events as e
from agent.core.events import CpuTimesRead
from agent.core.instructions import ReadCpuTimes, Wake
from agent.core.snapshot import ContainerUse, Snapshot
from tests.unit.agent.core.ranks_bed import Bed


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_a_coming_job_is_ranked_by_the_processor_time_of_that_moment(bed: Bed) -> None:
    olds = [bed.launch() for _ in range(2)]
    bed.sample(0.1)
    bed.now += 0.9
    bed.done.clear()
    fresh = bed.launch()
    assert bed.done.count(ReadCpuTimes()) == 1
    assert bed.order() == [*olds, fresh], "all have used nothing by the last sample"
    bed.send(CpuTimesRead(Snapshot(bed.now, 0.1, containers={each: ContainerUse(cpu_seconds=0.9) for each in olds})))
    assert bed.order() == [fresh, *olds]


def test_after_a_job_has_come_the_processor_time_is_read_again_at_gaps_that_double(bed: Bed) -> None:
    """A job that was expected to end at once, and does not, goes behind the new one long before the next sample."""
    bed.launch()
    bed.sample(0.1)
    bed.now += 0.5
    came = bed.now
    bed.done.clear()
    bed.launch()
    looked: list[float] = []
    while (due := bed.node.ranks.cpu_reads.due) is not None:
        assert [each for each in bed.done if isinstance(each, Wake)][-1] == Wake(due)
        bed.now = due
        bed.done.clear()
        bed.send(e.Woken(bed.now))
        looked += [bed.now - came] * bed.done.count(ReadCpuTimes())
    assert looked == pytest.approx([0.1, 0.3, 0.7], abs=0.02)


def test_a_job_of_another_origin_has_the_processor_time_read_again_too() -> None:
    bed = Bed(has_master=True, ranked=True)
    bed.launch()
    bed.sample(0.1)
    bed.now += 0.5
    bed.done.clear()
    bed.send(e.JobIntroduced("j", "j", "eve", 1.0))
    assert ReadCpuTimes() in bed.done and Wake(bed.node.ranks.cpu_reads.due or 0.0) in bed.done


def test_for_a_job_that_is_the_first_the_processor_time_is_not_read_again(bed: Bed) -> None:
    old = bed.launch()
    bed.used_s[old] = 100.0
    bed.sample(0.1)
    bed.now += 0.5
    fresh = bed.launch()
    assert bed.order() == [fresh, old]
    bed.done.clear()
    while (due := bed.node.ranks.cpu_reads.due) is not None:
        bed.now = due
        bed.send(e.Woken(bed.now))
    assert ReadCpuTimes() not in bed.done


def test_a_job_of_which_the_master_is_told_has_it_told_what_others_have_used() -> None:
    bed = Bed(has_master=True, ranked=True)
    old = bed.launch()
    job = bed.register(bed.connect(old))
    bed.node.load(bed.now)
    bed.done.clear()
    bed.now += 1.0
    bed.register(bed.eve)
    bed.register(bed.eve)
    assert bed.done.count(ReadCpuTimes()) == 1, "not twice within a moment"
    bed.send(CpuTimesRead(Snapshot(bed.now, 1.0, containers={old: ContainerUse(cpu_seconds=0.7)})))
    assert {use.job: use.service_s for use in bed.node.load(bed.now).jobs}[job] == 0.7
    bed.now += 1.0
    bed.done.clear()
    bed.register(bed.eve)
    assert bed.done.count(ReadCpuTimes()) == 1


def test_where_nothing_is_ranked_nothing_is_looked_at(bed: Bed) -> None:
    bed.register(bed.eve)
    assert ReadCpuTimes() not in bed.done
