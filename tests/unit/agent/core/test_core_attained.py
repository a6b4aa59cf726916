"""The attained service of jobs on a node, as its heartbeats report it."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import events as e
from agent.core.snapshot import ContainerUse
from penstock.model import ResourceKind
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import EndJob
from tests.fakes.node_bed import NodeBed


class Bed(NodeBed):
    """A node of two cores with a job of a client that is connected as session 1."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cores=2, **settings)
        self.open()
        self.job = self.register()

    def told(self, at: float) -> list[api.JobUse]:
        self.now = at
        return self.node.load(at).jobs

    def services(self, at: float) -> list[tuple[float, int]]:
        """Return the report of each job: its service in seconds, and the slots that it holds."""
        return [(use.service_s, use.running) for use in self.told(at)]

    def assigned(self, task: str, at: float, *, job: str = "", origin: str = "n") -> str:
        """Return the container of a command that the master placed here, and that runs."""
        self.now = at
        self.command(task, job=job or self.job, origin=origin)
        container = self.container(task, job or self.job)
        self.begin(container)
        return container

    def lend(self) -> str:
        """Return the container of processes of the job that were started by hand."""
        lent = str(self.send(e.LendRequested(1, self.job, 77, ("python",))))
        self.begin(lent, 77)
        return lent

    def sample(self, at: float, cpu_s: dict[str, float]) -> None:
        self.now = at
        self.sampled({container: ContainerUse(cpu_seconds=each) for container, each in cpu_s.items()})

    def end(self, container: str, at: float, cpu_s: float, status: int | None = 0) -> None:
        self.now = at
        self.exit(container, status, cpu_s)

    def end_job(self, at: float) -> api.JobUse:
        """Return the report to the master of the job's end."""
        self.now = at
        self.send(e.Requested(m.END_JOB, 1, EndJob(job=self.job)))
        [told] = self.to_master(api.JobEnded)
        assert told.use is not None
        return told.use


def test_service_is_slots_times_time_and_only_changes_are_reported(bed: Bed) -> None:
    assert bed.services(0.0) == [(0.0, 0)]
    assert bed.told(1.0) == [], "nothing changed"
    bed.submit(1, bed.job, 0, 1, 2)
    assert bed.services(3.0) == [(pytest.approx(4.0), 2)]
    bed.complete(1, bed.job, 0, 1)
    assert bed.services(4.0) == [(pytest.approx(5.0), 1)]


def test_work_that_comes_and_goes_between_two_heartbeats_counts(bed: Bed) -> None:
    bed.told(0.0)
    bed.now = 1.0
    bed.submit(1, bed.job, 1)
    bed.now = 1.25
    bed.complete(1, bed.job, 1)
    assert bed.services(2.0) == [(0.25, 0)]
    assert bed.told(3.0) == []


def test_a_new_connection_gets_all_jobs_and_ended_ones_are_dropped(bed: Bed) -> None:
    assert len(bed.told(0.0)) == 1
    assert bed.told(1.0) == []
    bed.node.decided = 7
    bed.node.link_opens()
    assert [use.job for use in bed.told(2.0)] == [bed.job]
    assert bed.node.decided == 0
    bed.end_job(3.0)
    bed.node.link_opens()
    assert bed.told(4.0) == []


def test_the_processor_time_of_its_containers_counts_where_it_is_more_than_slot_time(bed: Bed) -> None:
    bed.open(2)
    started = bed.launch(2)
    bed.begin(started)
    bed.open(3, container=started)
    bed.register(3, job=bed.job)
    bed.told(0.0)

    def told(at: float, cpu_s: float) -> list[float]:
        bed.sample(at, {started: cpu_s})
        return [use.service_s for use in bed.told(at)]

    assert told(1.0, 1.5) == [1.5]
    assert told(2.0, 1.51) == [], "too little to be told"
    assert told(3.0, 3.0) == [3.0]
    bed.submit(1, bed.job, 1)
    assert told(5.0, 4.0) == [4.0]
    assert told(20.0, 4.0) == [pytest.approx(17.0)], "by now the slot-time is more"
    bed.end(started, 21.0, 30.0)
    bed.sample(22.0, {})
    assert [use.service_s for use in bed.told(22.0)] == [30.0], "ended work counts"


@pytest.mark.parametrize(("ranked", "told_s"), [(True, [1.5, 1.5, 2.5]), (False, [9.0, 9.0, 9.0])])
def test_where_jobs_are_ranked_a_slot_that_is_held_counts_only_while_nothing_measures_its_job(
    ranked: bool, told_s: list[float]
) -> None:
    """The last of them all holds a disk's slot for long, as its process gets little of the processors."""
    bed = Bed(ranked=ranked)
    lent = bed.lend()
    bed.submit(1, bed.job, 1, kind=ResourceKind.DISK, size=1 << 20)
    bed.sample(9.0, {lent: 1.5})
    told = [use.service_s for use in bed.told(9.0)]
    bed.complete(1, bed.job, 1)
    told += [use.service_s for use in bed.told(9.0)]
    bed.now = 9.5
    bed.send(e.GivenBack(lent, 2.5, 0, bed.wall_s, ""))
    told.append(bed.end_job(9.5).service_s)
    assert told == told_s


# ---------------------------------------------------------------- to the end


def test_the_end_of_a_job_carries_the_work_ended_since_the_last_sample(bed: Bed) -> None:
    first, second = bed.assigned("t1", 0.0), bed.assigned("t2", 0.0)
    bed.sample(0.5, {first: 0.5, second: 0.25})
    bed.end(first, 0.9, 1.75)
    assert [use.service_s for use in bed.told(0.9)] == [2.0], "the end of a container counts at once"
    bed.end(second, 1.0, 2.5)
    assert bed.end_job(1.0) == api.JobUse(job=bed.job, service_s=4.25, last=True)
    assert bed.told(1.1) == [], "it is told once"


def test_the_end_of_a_job_carries_slot_time_until_then_where_that_is_more(bed: Bed) -> None:
    bed.now = 1.0
    bed.submit(1, bed.job, 1)
    assert bed.end_job(1.75) == api.JobUse(job=bed.job, service_s=0.75, last=True)


def test_a_container_that_ends_after_its_job_is_reported_when_it_has_ended(bed: Bed) -> None:
    first, second = bed.assigned("t1", 0.0), bed.assigned("t2", 0.0)
    bed.sample(3.0, {first: 3.0, second: 3.0})
    assert bed.end_job(3.0) == api.JobUse(job=bed.job, service_s=6.0)
    assert bed.told(3.0) == []
    bed.end(first, 3.1, 3.5, status=None)
    bed.sample(4.0, {second: 4.0})
    assert bed.told(4.0) == []
    bed.end(second, 4.1, 4.25, status=None)
    assert bed.told(4.2) == [api.JobUse(job=bed.job, service_s=7.75, last=True)]
    assert bed.told(4.3) == []


@pytest.mark.parametrize("why_not", ["", "its cgroup is gone"])
def test_lent_processes_count_until_they_are_given_back(bed: Bed, why_not: str) -> None:
    lent = bed.lend()
    bed.sample(1.0, {lent: 1.0})
    assert bed.end_job(1.9) == api.JobUse(job=bed.job, service_s=1.0)
    assert bed.node.attained.to_come_s(bed.job) == 1.0
    bed.send(e.GivenBack(lent, 1.875, 0, bed.wall_s, why_not))
    assert bed.node.attained.to_come_s(bed.job) == 1.875
    assert bed.told(2.0) == [api.JobUse(job=bed.job, service_s=1.875, last=True)]
    if why_not:  # it goes on, and what it used was its job's
        bed.sample(3.0, {lent: 2.0})
        assert bed.node.cpu_times.cpu_s[lent] == 0.125
        bed.restart(lent)
        bed.sample(1.0, {lent: 2.0})
        assert bed.node.cpu_times.cpu_s[lent] == 0.125


GUEST = {"job": "b-y-1", "origin": "b"}


def test_the_last_of_a_job_of_another_origin_is_reported_and_it_begins_at_0_when_it_comes_again(bed: Bed) -> None:
    bed.told(0.0)
    bed.end(bed.assigned("t1", 0.0, **GUEST), 0.5, 1.5)
    second = bed.assigned("t2", 0.5, **GUEST)
    assert bed.told(0.5) == [
        api.JobUse(job="b-y-1", service_s=1.5, last=True), api.JobUse(job="b-y-1", service_s=0.0, running=1)
    ]  # fmt: skip
    bed.end(second, 0.75, 1.25)
    assert bed.told(0.75) == [api.JobUse(job="b-y-1", service_s=1.25, last=True)]


def test_the_last_of_a_job_waits_for_a_master_that_reads_it(bed: Bed) -> None:
    bed.end(bed.assigned("t1", 0.0, **GUEST), 0.5, 1.5)
    bed.node.link_opens()
    assert [use.job for use in bed.told(1.0) if use.job.startswith("b")] == []
    bed.node.attained.lasts_read = True
    assert bed.told(1.0) == [api.JobUse(job="b-y-1", service_s=1.5, last=True)]


def test_a_job_that_came_again_while_the_master_was_away_counts_on(bed: Bed) -> None:
    """Its registration has no final reports: one that follows would count what the registration reports once more."""
    bed.end(bed.assigned("t1", 0.0, **GUEST), 0.5, 1.5)
    second = bed.assigned("t2", 0.5, **GUEST)
    bed.node.link_opens()
    assert api.JobUse(job="b-y-1", service_s=1.5, running=1) in bed.told(0.5)
    bed.node.attained.lasts_read = True
    bed.end(second, 0.75, 1.25)
    assert bed.told(0.75) == [api.JobUse(job="b-y-1", service_s=2.75, last=True)]
    bed.assigned("t3", 0.75, **GUEST)
    assert bed.told(0.75) == [api.JobUse(job="b-y-1", service_s=0.0, running=1)]
