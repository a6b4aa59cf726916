"""Granted slots become messages to the frameworks that hold them, and containers of placed commands.

Placed commands wait in the queues like any monotask, in the session COMMANDS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.core import cores, tasks
from agent.core.containers import Containers
from agent.core.instructions import Grant, Instruction, Notify
from agent.core.membership import Membership
from agent.core.ranks import Ranks
from agent.core.records import ContainerRecord, HeldTask, command_record
from agent.core.settings import NodeSettings
from agent.queues import COMMANDS, Monotask, MonotaskQueues, slotless
from agent.queues.withheld import withhold
from penstock.model import Ended, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion, Grants, Recall


@dataclass(eq=False, slots=True)
class SlotGrants:
    """Starts the placed commands and withholds the CPU slots of cores that are promised to containers."""

    settings: NodeSettings
    _members: Membership
    _queues: MonotaskQueues
    _held: tasks.HeldTasks
    _containers: Containers
    _ranks: Ranks
    _ids: Iterator[str]
    uses: cores.MeasuredUses = field(default_factory=cores.MeasuredUses)
    withheld_slots: int = 0

    # ------------------------------------------------------------ slots

    def granted(self, granted: list[Monotask], now: float) -> list[Instruction]:
        """Return one message per session and job; a command's grant starts the command."""
        if not granted:
            return []
        by_owner: dict[tuple[int, str, float, bool], Grants] = {}
        instructions: list[Instruction] = []
        before: tuple[int, str, float, bool] | None = None
        for monotask in granted:
            if monotask.session == COMMANDS:
                held = self._held.by_key[monotask.job, str(monotask.id)]
                instructions += self._start(held, monotask.kind, now)
                continue
            owner = (monotask.session, monotask.job, monotask.lease_until, monotask.keep)
            if owner != before:  # usually all grants made at once belong to one job
                before = owner
                if owner not in by_owner:
                    lease_s = self.settings.lease_s if monotask.lease_until else 0.0
                    if monotask.keep:
                        lease_s = self.settings.lease_kept_s
                    grants = Grants(job=monotask.job, ids=[], lease_s=lease_s, keep=monotask.keep)
                    by_owner[owner] = grants
                    instructions.append(Grant(monotask.session, grants))
                ids = by_owner[owner].ids
            ids.append(monotask.id)
        return instructions

    def recalls(self) -> list[Instruction]:
        """Tell connections of leases that end because a job ahead waits, and of kept slots that are called back."""
        return [
            Notify(session, Recall(job=name, kind=kind, idle=only is not None))
            for name, kind, only in self._queues.take_recalled()
            if (job := self._members.jobs.get(name)) is not None
            for session in (sorted(job.sessions) if only is None else (only,))
        ]

    def withhold(self, now: float) -> list[Instruction]:
        """Withhold the slots of cores that are promised and used; grant those that are free again."""
        if not (self.withheld_slots or any(record.promised_cores for record in self._containers.live.values())):
            return []
        account = cores.account(
            self._containers.live, self._members.sessions.values(), self._queues, self.uses.by_container
        )
        slots = self.settings.capacity.cpu_slots_withheld(account.promised_cores - account.lent_cores)
        if slots == self.withheld_slots:
            return []  # no slot has become free
        self.withheld_slots = slots
        return self.granted(withhold(self._queues, slots, now), now)

    # ------------------------------------------------------------ placed commands

    def queue(self, held: HeldTask, now: float, *, running: bool = False) -> list[Instruction]:
        """Queue a placed command for the slot of its resource. ``running``: it has held one since before a restart.

        An opportunistic command waits for slack instead, the resources that slot holders leave unused (UBIS, Algorithm
        1). A command that needs no slot starts at once: its cores are promised to it (:attr:`HeldTask.slot`).
        """
        spec = _monotask(held, running=running)
        if running and (held.opportunistic or held.slot is None):
            slotless.begin(self._queues, held.job, spec, now)
            return []
        if held.opportunistic:
            self._held.wait(held, now)
            return []
        if held.slot is None:
            return self.start(held, now)
        return self.granted(self._queues.submit(COMMANDS, held.job, [spec], now), now)

    def start(self, held: HeldTask, now: float) -> list[Instruction]:
        """Start a placed command that needs no slot: an opportunistic one, an executor, or one with promised cores."""
        slotless.begin(self._queues, held.job, _monotask(held), now)
        return self._start(held, None, now)

    def give_slot(self, held: HeldTask, now: float) -> None:
        """Count a running command in the slot that it needs as regular work, even if none is free."""
        slotless.give_slot(self._queues, held.job, _monotask(held), now)

    def cancel(self, held: HeldTask, now: float) -> list[Instruction]:
        """Take a command that has not started out of the queues."""
        if held.job not in self._members.jobs:
            return []
        return self.granted(self._queues.cancel(COMMANDS, held.job, [held.task], now), now)

    def remove_job(self, job: str, now: float) -> list[Instruction]:
        """Remove a job's queue and free its slots, including those of commands that are still being stopped.

        Should the job come back before such a container has ended, its new queue does not have the command.
        """
        for record in self._containers.live.values():
            if record.job == job:
                record.hold(None)
        return self.granted(self._queues.remove_job(job, now), now)

    def command_ended(self, record: ContainerRecord, ended: Ended, now: float) -> list[Instruction]:
        """Free the slot of a placed command after its container's end."""
        if record.job not in self._members.jobs:
            return []
        if record.kind is not None:
            completion = [Completion(id=record.task, failed=not ended.ok)]
            return self.granted(self._queues.complete(COMMANDS, record.job, completion, now), now)
        if record.task:
            slotless.end(self._queues, record.job, record.task, now, failed=not ended.ok)
        return []

    def _start(self, held: HeldTask, slot: ResourceKind | None, now: float) -> list[Instruction]:
        journal = self._held.start(held, f"c-{next(self._ids)}")
        record = command_record(held, slot)
        self._ranks.begin(record)
        instructions: list[Instruction] = [journal, *self._containers.add(record)]
        return instructions + self.withhold(now) if record.promised_cores else instructions


def _monotask(held: HeldTask, *, running: bool = False) -> MonotaskSpec:
    """Return a placed command as a monotask for the queues."""
    kind = held.request.command_kind
    size = int(held.request.usage.of(kind))
    return MonotaskSpec(id=held.task, kind=kind, input_bytes=size, stage=held.stage, running=running)
