"""Reports of the launcher and the cgroups: a container started, did not start, exited or was given back.

The end of a container frees what it holds in every other part of the node; :meth:`ContainerEvents._end` has the order.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core import events as e
from agent.core.attained_service import AttainedService
from agent.core.command_sizes import CommandSizes
from agent.core.confinement import confine
from agent.core.containers import Containers, how_it_ended
from agent.core.elasticity import Elasticity
from agent.core.executors import Executors
from agent.core.instructions import Instruction, Notify, RemoveContainer
from agent.core.job_cpu_times import JobCpuTimes
from agent.core.job_lifecycle import JobLifecycle
from agent.core.lent_containers import LentContainers
from agent.core.membership import Membership
from agent.core.preemption_actions import PreemptionActions
from agent.core.ranks import Ranks
from agent.core.records import ContainerRecord, ContainerState
from agent.core.slot_grants import SlotGrants
from agent.core.tasks import HeldTasks
from penstock.model import Ended, EndedBy
from penstock.wire.agent_api import ContainerEnded


@dataclass(eq=False, slots=True)
class ContainerEvents:
    """Applies each report to the owners of the state that it changes."""

    _members: Membership
    _held: HeldTasks
    _containers: Containers
    _command_sizes: CommandSizes
    _ranks: Ranks
    _cpu_times: JobCpuTimes
    _attained: AttainedService
    _elasticity: Elasticity
    _executors: Executors
    _preemption: PreemptionActions
    _slot_grants: SlotGrants
    _lent: LentContainers
    _lifecycle: JobLifecycle

    def started(self, event: e.ContainerStarted, now: float) -> list[Instruction]:
        """Record that a container runs, and apply changes made while it was starting."""
        if event.container not in self._containers.live:
            return []  # a dying launcher had reported its end, too, which was read first
        instructions = self._containers.started(event.container, event.pid, event.not_enforced, event.at)
        record = self._containers.live[event.container]
        if record.executor is not None:
            self._executors.started(record, now)
        if record.state is ContainerState.RUNNING:
            wanted = record.confine()
            spec, weight = record.spec, record.rank_weight
            if wanted.confinement != confine(
                spec, spec.limits, opportunistic=spec.opportunistic, rank_weight=weight, borrowed=record.borrowed
            ):
                instructions.append(wanted)
        if event.orphaned:
            instructions += self._containers.orphan(event.container)
        if record.opportunistic:
            instructions.append(self._ranks.reclassed(record))
        if not self._ranks.knows(record):
            instructions += self._ranks.rank(now)
            instructions += self._ranks.look(now, self._cpu_times.job_of(record.container))
        return instructions + self._lent.give_back(record)

    def confined(self, event: e.Confined, now: float) -> list[Instruction]:
        """Record which settings the kernel does not enforce."""
        self._containers.confined(event.container, event.not_enforced)
        return []

    def launcher_lost(self, event: e.LauncherLost, now: float) -> list[Instruction]:
        """Continue without the launcher. Containers that are starting are not known to be its children yet."""
        instructions: list[Instruction] = []
        for record in list(self._containers.live.values()):
            if record.pid and not record.orphaned:
                instructions += self._containers.orphan(record.container)
        return instructions

    def not_started(self, event: e.ContainerNotStarted, now: float) -> list[Instruction]:
        """Record that a container could not be started."""
        record = self._containers.live.get(event.container)
        if record is None:
            return []  # as in :meth:`started`
        ended = Ended(
            by=record.stopping_by or EndedBy.FAILED,
            exit_status=event.exit_status,
            reason=record.stopping_reason or event.message,
        )
        return self._end(record, ended, now)

    def exited(self, event: e.ContainerExited, now: float) -> list[Instruction]:
        """Record the exit of a container."""
        record = self._containers.live.get(event.container)
        if record is None:  # an earlier agent recorded its end, and died before all of it was removed
            return [RemoveContainer(event.container)]
        self._preemption.latency.ended(event.container, now)
        return self._end(record, how_it_ended(record, event), now)

    def given_back(self, event: e.GivenBack, now: float) -> list[Instruction]:
        """Remove a container that was given back; if that failed, it stays."""
        record = self._containers.live.get(event.container)
        if record is None:
            return []  # it ended meanwhile
        if event.why_not:
            return self._lent.stays(event, record)
        wanted = self._lent.wanted(record.container)
        instructions = self._end(record, self._lent.how_it_ended(event, record), now)
        return instructions + (self._lent.lend_anew(record, wanted) if wanted else [])

    def _end(self, record: ContainerRecord, ended: Ended, now: float) -> list[Instruction]:
        """End a container: notify those waiting, free its resources, start the next in order."""
        container = record.container
        self._preemption.policy.drop(container)
        self._elasticity.unfollow(container)
        self._executors.ended(container, ended.cpu_seconds, now)
        moves_up = self._ranks.ended(record, ended.cpu_seconds, now)
        run = self._held.run_in(record)
        instructions: list[Instruction] = []
        if run is not None:  # first, or an agent that dies here would run it again
            instructions += self._held.command_ended(run, ended)
        instructions += self._containers.end(container, ended)
        self._command_sizes.ended(record)
        self._attained.container_gone(record.job)
        over = ContainerEnded(container=container, ended=ended)
        for session in self._members.sessions.values():
            if session.container_ended(container):
                instructions.append(Notify(session.session, over))
        if run is not None:
            instructions += self._slot_grants.command_ended(record, ended, now)
        instructions += self._lifecycle.drop_guest(record.job, now)
        return instructions + (self._ranks.rank(now) if moves_up else [])
