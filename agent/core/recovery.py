"""Restore jobs, tasks and containers after a restart of the agent, including containers without a record."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core import events as e
from agent.core import origin_journal
from agent.core.attained_service import AttainedService
from agent.core.cancelled_jobs import CancelledJobs
from agent.core.command_sizes import CommandSizes
from agent.core.container_events import ContainerEvents
from agent.core.containers import ROOM, Containers
from agent.core.draining import Drain
from agent.core.elasticity import Elasticity
from agent.core.executors import Executors
from agent.core.instructions import Freeze, Instruction, KillContainer, Record, RemoveContainer
from agent.core.job_cpu_times import JobCpuTimes
from agent.core.job_lifecycle import JobLifecycle
from agent.core.lent_containers import LentContainers
from agent.core.membership import Membership
from agent.core.placed_work import PlacedWork
from agent.core.records import ContainerRecord, ContainerState, command_record
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import ContainerSpec


@dataclass(eq=False, slots=True)
class Recovery:
    """Gives the records of an earlier agent to their owners."""

    _members: Membership
    _cancelled_jobs: CancelledJobs
    _containers: Containers
    _cpu_times: JobCpuTimes
    _attained: AttainedService
    _command_sizes: CommandSizes
    _elasticity: Elasticity
    _executors: Executors
    _lent: LentContainers
    _lifecycle: JobLifecycle
    _drain: Drain
    _placed: PlacedWork
    _container_events: ContainerEvents

    def jobs(self, event: e.Recovered, now: float) -> None:
        """Restore the jobs in their order: frameworks have ``rejoin_s`` to return to them."""
        for record in sorted(event.jobs, key=lambda record: (record.place, record.submitted_at, record.job)):
            job, _ = self._lifecycle.add(record, now)
            job.take_back(now)  # a guest with tasks here stays as long as they do

    def work(self, event: e.Recovered, now: float) -> list[Instruction]:
        """Restore the tasks of this origin, the cancelled jobs, the containers, which simply continue, and the tasks
        placed here.
        """
        first = origin_journal.take_back(self._members.jobs, event.awaited, event.ends)
        first += self._cancelled_jobs.restore(event.cancelled)
        first += self._containers.take_back_ended([c for c in event.containers if c.ended is not None])
        self._command_sizes.recovered(event.containers)
        started_anew = _started_anew(event)
        live = [container for container in event.containers if container.ended is None]
        live += _unrecorded(event)
        for container in live:
            if container.container not in started_anew:
                first += self._take_back(container, event, now)
        for name in sorted(event.orphans):
            first += self._containers.orphan(name) if name in self._containers.live else []
        first += self._containers.watch()
        self._attained.count_on(event.service_s, event.own, event.ended_s)
        self._drain.draining = event.draining
        held = self._placed.recovered(event, now) + self._drain.give_back(now)
        return [
            *(one for name in started_anew for one in (Record(ROOM, name, None), RemoveContainer(name))),
            *first,
            *held,
            *self._ended_meanwhile(event, live, now),
            *self._count_cpu_times(event, now),
            *self._confinements(event, now),
            *(one for record in self._containers.live.values() for one in self._lent.give_back(record)),
        ]

    def _take_back(self, record: ContainerRecord, event: e.Recovered, now: float) -> list[Instruction]:
        """Take over a container that outlived the agent."""
        thaw: list[Instruction] = []
        if record.state is ContainerState.PAUSED and record.container in event.running:
            thaw.append(Freeze(record.container, frozen=False))  # preemption decides anew whether to freeze it
        record.hold(None)  # it gets its slot back with its task, unless the task's end is recorded
        self._containers.take_back(record, event.running.get(record.container, 0))
        self._cpu_times.take_back(record)
        if record.profile is not None:
            self._elasticity.follow(record, now - (event.at - (record.profile_at or event.at)))
        if record.executor is not None:
            self._executors.resumed(record, event.at, now)
        return thaw

    def _count_cpu_times(self, event: e.Recovered, now: float) -> list[Instruction]:
        """Count what an earlier agent has counted of the containers: it is no service of this agent's time."""
        uses = {container: ContainerUse(cpu_seconds=used_s) for container, used_s in event.cpu_s.items()}
        changed = self._cpu_times.count(Snapshot(at=now, interval_s=0.0, containers=uses))
        return [Record(ROOM, record.container, record) for record in changed]

    def _confinements(self, event: e.Recovered, now: float) -> list[Instruction]:
        """Confine every container again: a change may have been under way, or another program may have interfered."""
        instructions: list[Instruction] = []
        for record in self._containers.live.values():
            runs = record.container in event.running and record.state is ContainerState.RUNNING
            if runs and not record.unrecorded:
                instructions += record.resize(self._elasticity.limits(record, now)) or [record.confine()]
        return instructions

    def _ended_meanwhile(self, event: e.Recovered, live: list[ContainerRecord], now: float) -> list[Instruction]:
        """End lost containers, and finish interrupted kills."""
        instructions: list[Instruction] = []
        for record in live:
            container = record.container
            if container in event.running:
                if record.stopping_by is not None:
                    instructions.append(KillContainer(container, record.stopping_reason))
            elif container in event.never_began:
                if container in self._containers.live:
                    never = e.ContainerNotStarted(
                        container, "the agent was restarted before the command was started: it never ran"
                    )
                    instructions += self._container_events.not_started(never, now)
            elif container not in event.exits_to_come:
                record.orphaned = True
                gone = e.ContainerExited(container, None, None, 0.0, 0, 0, event.at)
                instructions += self._container_events.exited(gone, now)
        return instructions


def _started_anew(event: e.Recovered) -> list[str]:
    """Return the containers of placed commands that never began: their tasks get new containers.

    A launched command is not started again: its client does not know the container's id.
    """
    commands = {held.container for held in event.tasks if held.ended is None}
    return [
        record.container
        for record in event.containers
        if record.container in event.never_began & commands and record.stopping_by is None
    ]


def _unrecorded(event: e.Recovered) -> list[ContainerRecord]:
    """Create records for containers that run without one: from the command's task, else from known facts."""
    recorded = {container.container for container in event.containers}
    commands = {held.container: held for held in event.tasks if held.container}
    made: list[ContainerRecord] = []
    for container in sorted(event.running.keys() - recorded):
        if container in commands:
            made.append(command_record(commands[container], None))
        else:
            spec = ContainerSpec(argv=("?",), detach=True)
            user = event.owners.get(container, "")
            made.append(
                ContainerRecord(container=container, user=user, spec=spec, opportunistic=False, unrecorded=True)
            )
    return made
