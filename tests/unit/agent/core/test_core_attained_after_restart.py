"""The service that an agent and the next one report of a job: the master's sum is what the job has received."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import events as e
from agent.core.snapshot import ContainerUse
from master.core.work import Work
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import EndJob
from tests.fakes.node_bed import NodeBed

GUEST = {"job": "b-y-1", "origin": "b"}


class Bed(NodeBed):
    """A node, and what a master knows of the service of one job there."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cores=2, **settings)
        self.job = GUEST["job"]
        self.work = Work()

    def command_runs(self, task: str) -> str:
        """Return the container of a command of the other origin's job."""
        self.command(task, **GUEST)
        container = self.container(task, self.job)
        self.begin(container)
        return container

    def process_runs(self) -> str:
        """Return the container of a process that has registered the job."""
        self.open()
        container = self.launch()
        self.begin(container)
        self.open(2, container=container)
        self.job = self.register(2)
        return container

    def sample(self, after_s: float = 1.0, **cpu_s: float) -> None:
        self.now += after_s
        self.sampled({container.replace("_", "-"): ContainerUse(cpu_seconds=each) for container, each in cpu_s.items()})

    def report(self) -> None:
        """Let the master receive a heartbeat."""
        self.received(*self.node.load(self.now).jobs)

    def registers(self) -> None:
        """Let the agent register with the master, which reads final reports."""
        self.node.link_opens()
        self.report()
        self.node.attained.lasts_read = True

    def received(self, *uses: api.JobUse) -> None:
        for use in uses:
            if use.job == self.job:
                self.work.attained("n", use)


def by_name(container: str) -> str:
    return container.replace("-", "_")


@pytest.mark.parametrize("read", [True, False], ids=["its CPU time is read at the start", "it is not"])
@pytest.mark.parametrize("away", [True, False], ids=["the master is away meanwhile", "it is not"])
@pytest.mark.parametrize("how", ["a command", "a process in a container"])
def test_the_processor_time_of_a_container_before_and_after_a_restart_counts_once(
    how: str, *, away: bool, read: bool
) -> None:
    bed = Bed()
    container = bed.command_runs("t1") if how == "a command" else bed.process_runs()
    name = by_name(container)
    bed.sample(**{name: 10.0})
    bed.report()
    bed.restart(container, cpu_s={container: 10.0} if read else {})
    if how == "a process in a container":
        bed.open(3, container=container)
        bed.register(3, job=bed.job)
    if not away:
        bed.registers()
    bed.sample(**{name: 10.0})
    bed.sample(**{name: 13.0})
    if away:
        bed.registers()
    assert bed.node.cpu_times.cpu_s[bed.job] == 13.0, "by all of it the job is ranked"
    bed.report()
    bed.sample(**{name: 14.0})
    bed.report()
    assert bed.work.service_s == pytest.approx(14.0)
    bed.exit(container, cpu_s=15.0)
    bed.report()
    bed.sample()
    bed.report()
    assert bed.work.service_s == pytest.approx(15.0)
    assert ("n" in bed.work.told_last) == (how == "a command")


def test_what_a_job_receives_between_a_restart_and_the_return_of_the_master_counts() -> None:
    """More of its containers had ended before the restart than run after it."""
    bed = Bed()
    ended, going_on = bed.command_runs("t1"), bed.command_runs("t2")
    bed.sample(**{by_name(ended): 900.0, by_name(going_on): 100.0})
    bed.exit(ended, cpu_s=900.0)
    bed.report()
    assert bed.work.service_s == 1000.0
    bed.restart(going_on, cpu_s={going_on: 100.0})
    bed.sample(800.0, **{by_name(going_on): 900.0})
    bed.registers()
    assert bed.work.service_s == 1800.0
    bed.exit(going_on, cpu_s=900.0)
    bed.report()
    assert bed.work.service_s == 1800.0


def test_slots_after_a_restart_count_from_its_time_on() -> None:
    """The containers' processor time until then is no reason not to count them."""
    bed = Bed(ranked=False)
    container = bed.process_runs()
    bed.submit(2, bed.job, 0)
    bed.sample(1000.0, **{by_name(container): 300.0})
    bed.report()
    assert bed.work.service_s == 1000.0
    bed.restart(container, cpu_s={container: 300.0})
    bed.open(3, container=container)
    bed.register(3, job=bed.job)
    bed.registers()
    bed.submit(3, bed.job, 0)
    bed.sample(100.0, **{by_name(container): 300.0})
    bed.report()
    assert bed.work.service_s == 1100.0


@pytest.mark.parametrize("how", ["its launcher reports the exit", "it is lost"])
def test_a_command_that_ended_while_no_agent_ran_is_not_counted_again(how: str) -> None:
    bed = Bed()
    container = bed.command_runs("t1")
    bed.sample(**{by_name(container): 10.0})
    bed.report()
    awaited = how == "its launcher reports the exit"
    bed.restart(exits_to_come=frozenset({container} if awaited else ()))
    bed.registers()
    if awaited:
        bed.exit(container, cpu_s=10.0)
    bed.report()
    assert (bed.work.service_s, bed.work.told_last) == (10.0, {"n"})


@pytest.mark.parametrize("ended", [True, False], ids=["it has ended", "it runs"])
def test_what_a_container_used_between_a_stopped_agent_and_the_next_one_counts(*, ended: bool) -> None:
    bed = Bed()
    container = bed.command_runs("t1")
    bed.sample(**{by_name(container): 10.0})
    bed.report()
    exits = frozenset({container} if ended else ())
    bed.restart(*(() if ended else (container,)), exits_to_come=exits, **bed.last_count())
    bed.registers()
    if ended:
        bed.exit(container, cpu_s=12.0)
    else:
        bed.sample(**{by_name(container): 12.0})
    bed.report()
    assert bed.work.service_s == 12.0


def test_the_last_report_of_a_stopped_agent_has_every_job_however_little_it_has_received_since() -> None:
    """The next one goes on from what each container has used."""
    bed = Bed()
    container = bed.command_runs("t1")
    bed.sample(**{by_name(container): 10.0})
    bed.report()
    bed.sample(**{by_name(container): 10.04})
    bed.node.attained.report_all()
    bed.report()
    assert bed.work.service_s == pytest.approx(10.04)
    bed.restart(container, **bed.last_count())
    bed.registers()
    bed.sample(**{by_name(container): 12.0})
    bed.report()
    assert bed.work.service_s == pytest.approx(12.0)


def test_the_end_of_a_job_has_what_it_received_since_the_restart() -> None:
    bed = Bed()
    container = bed.process_runs()
    bed.sample(**{by_name(container): 10.0})
    bed.report()
    bed.restart(container, cpu_s={container: 10.0})
    bed.open(3, container=container)
    bed.register(3, job=bed.job)
    bed.sample(**{by_name(container): 12.0})
    bed.send(e.Requested(m.END_JOB, 3, EndJob(job=bed.job)))
    [told] = bed.to_master(api.JobEnded)
    assert told.use == api.JobUse(job=bed.job, service_s=2.0, last=True)
    bed.received(told.use)
    assert bed.work.service_s == 12.0


def test_the_processor_time_of_a_container_before_its_first_job_counts_for_it_after_a_restart_too() -> None:
    """No agent has reported it."""
    bed = Bed()
    bed.open()
    container = bed.launch()
    bed.begin(container)
    bed.sample(**{by_name(container): 10.0})
    bed.restart(container, cpu_s={container: 10.0})
    bed.open(3, container=container)
    bed.job = bed.register(3)
    bed.sample(**{by_name(container): 11.0})
    bed.report()
    assert bed.work.service_s == 11.0


@pytest.mark.parametrize("arrived", [True, False], ids=["the last report arrived", "it was lost"])
def test_what_a_stopped_agent_received_without_a_master_counts_once(*, arrived: bool) -> None:
    """Since the outage began the job has received more than before, and one of its containers has ended."""
    bed = Bed()
    ended, going_on = bed.command_runs("t1"), bed.command_runs("t2")
    bed.sample(**{by_name(ended): 3.0, by_name(going_on): 2.0})
    bed.report()
    bed.sample(**{by_name(ended): 20.0, by_name(going_on): 30.0})
    if arrived:
        bed.report()
    bed.exit(ended, cpu_s=40.0)
    bed.restart(going_on, **bed.last_count())
    bed.sample(**{by_name(going_on): 35.0})
    bed.restart(going_on, **bed.last_count())  # this one had no master either
    bed.sample(**{by_name(going_on): 36.0})
    bed.registers()
    assert bed.work.service_s == pytest.approx(76.0)
    bed.report()
    bed.sample(**{by_name(going_on): 38.0})
    bed.report()
    assert bed.work.service_s == pytest.approx(78.0)


def test_the_service_of_an_ended_job_waits_for_the_master_over_restarts() -> None:
    bed = Bed()
    container = bed.command_runs("t1")
    bed.sample(**{by_name(container): 3.0})
    bed.report()
    bed.exit(container, cpu_s=10.0)
    bed.send(e.EndAcknowledged(bed.job, "t1"))
    assert bed.job not in bed.node.jobs
    for _ in range(2):
        bed.restart(**bed.last_count())
    bed.registers()
    bed.report()
    assert (bed.work.service_s, bed.work.told_last) == (10.0, {"n"})


@pytest.mark.parametrize("ended", [True, False], ids=["it ended while no agent ran", "it ends under the next agent"])
def test_the_last_container_of_a_cancelled_job_may_end_after_its_agent(*, ended: bool) -> None:
    bed = Bed()
    container = bed.command_runs("t1")
    bed.sample(**{by_name(container): 3.0})
    bed.report()
    bed.decide(api.CancelJob(job=bed.job, by="ann"))
    assert bed.job not in bed.node.jobs
    exits = frozenset({container} if ended else ())
    bed.restart(*(() if ended else (container,)), exits_to_come=exits, **bed.last_count())
    bed.registers()
    bed.exit(container, cpu_s=10.0)
    bed.report()
    assert (bed.work.service_s, bed.work.told_last) == (10.0, {"n"})


def test_a_job_whose_end_its_origin_has_reported_since_the_last_count_is_not_reported_again() -> None:
    """The end has its service, and the agent was killed before it recorded another count."""
    bed = Bed()
    container = bed.process_runs()
    bed.sample(**{by_name(container): 10.0})
    count = bed.last_count()
    bed.send(e.Requested(m.END_JOB, 2, EndJob(job=bed.job)))
    [told] = bed.to_master(api.JobEnded)
    assert told.use is not None
    bed.received(told.use)
    bed.restart(container, **count)
    bed.registers()
    bed.report()
    assert bed.work.service_s == 10.0


def test_a_job_that_came_again_while_its_master_was_away_counts_on_under_the_next_agent() -> None:
    bed = Bed()
    first = bed.command_runs("t1")
    bed.sample(**{by_name(first): 3.0})
    bed.exit(first, cpu_s=10.0)
    bed.send(e.EndAcknowledged(bed.job, "t1"))
    second = bed.command_runs("t2")
    bed.sample(**{by_name(second): 1.0})
    bed.restart(second, **bed.last_count())
    bed.sample(**{by_name(second): 2.0})
    bed.registers()
    bed.report()
    assert bed.work.service_s == 12.0


@pytest.mark.parametrize("over", [True, False], ids=["the job is over", "the job goes on"])
def test_an_agent_that_leaves_no_count_takes_nothing_of_the_count_before_it(*, over: bool) -> None:
    """The job's last container ends while no agent runs; the next agent learns of it, and is killed."""
    bed = Bed()
    container = bed.command_runs("t1")
    bed.sample(**{by_name(container): 10.0})
    if over:
        bed.decide(api.CancelJob(job=bed.job, by="ann"))
    count = bed.last_count()
    bed.restart(exits_to_come=frozenset({container}), **count)
    bed.exit(container, cpu_s=500.0)
    bed.restart(**count)
    bed.registers()
    bed.report()
    assert bed.work.service_s == 10.0


@pytest.mark.parametrize("restarts", [True, False])
def test_a_job_that_comes_again_keeps_what_it_had_before_its_present_containers(*, restarts: bool) -> None:
    bed = Bed()
    first = bed.command_runs("t1")
    bed.sample(**{by_name(first): 10.0})
    bed.report()
    bed.exit(first, cpu_s=20.0)
    bed.send(e.EndAcknowledged(bed.job, "t1"))
    second = bed.command_runs("t2")
    bed.sample(**{by_name(second): 5.0})
    bed.decide(api.CancelJob(job=bed.job, by="ann"))
    if restarts:
        bed.restart(second, **bed.last_count())
    bed.sample(**{by_name(second): 6.0})
    third = bed.command_runs("t3")
    bed.registers()
    bed.sample(**{by_name(second): 6.0, by_name(third): 1.0})
    bed.report()
    assert bed.work.service_s == pytest.approx(27.0)
