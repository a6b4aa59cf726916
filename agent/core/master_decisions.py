"""The master's decisions are proposals: the node checks each against its own state, and may refuse it."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core import events as e
from agent.core import tasks
from agent.core.draining import Drain
from agent.core.elasticity import Elasticity
from agent.core.executors import Executors
from agent.core.instructions import Instruction, Record, Reply
from agent.core.job_lifecycle import ROOM, JobLifecycle
from agent.core.membership import Membership
from agent.core.placed_work import PlacedWork
from agent.core.ranks import Ranks
from agent.core.slot_grants import SlotGrants
from agent.queues import MonotaskQueues
from penstock.wire.agent_api import JobAdmitted
from penstock.wire.master_api import (
    AdmitJob,
    AnyDecision,
    Assign,
    CancelJob,
    Decided,
    Promote,
    Refusal,
    SetPriority,
    TellEnded,
    TellPlaced,
    TellStages,
    TellStuck,
    TellWaiting,
    Withdraw,
)
from penstock.wire.master_api import (
    Drain as DrainDecision,
)


@dataclass(eq=False, slots=True)
class MasterDecisions:
    """Passes each decision to the owner of the state that it changes."""

    _node: str
    _members: Membership
    _queues: MonotaskQueues
    _held: tasks.HeldTasks
    _ranks: Ranks
    _elasticity: Elasticity
    _executors: Executors
    _slot_grants: SlotGrants
    _lifecycle: JobLifecycle
    _drain: Drain
    _placed: PlacedWork

    def decided(self, event: e.Decided, now: float) -> list[Instruction]:
        """Carry out the decisions that are possible; the reply lists those refused, and why."""
        instructions: list[Instruction] = []
        refusals: list[Refusal] = []
        for index, decision in enumerate(event.decisions):
            why = self._carry_out(decision, instructions, event.at, now)
            if why:
                refusals.append(Refusal(index=index, reason=why))
        if moved := {decision.job for decision in event.decisions if isinstance(decision, SetPriority)}:
            instructions += self._slot_grants.granted(self._queues.reordered(now), now)
            instructions += self._ranks.reordered(moved, now)  # the order is then the same on all nodes
        assigned = any(isinstance(decision, Assign) for decision in event.decisions)
        return [Reply(Decided(refused=refusals, places_known=assigned)), *instructions]

    def _carry_out(self, decision: AnyDecision, out: list[Instruction], at: float, now: float) -> str:
        """Carry out one decision and append its instructions to ``out``; return why it was refused, or ""."""
        if isinstance(decision, DrainDecision):
            out += self._drain.decided(decision.draining, now)
            return ""
        job = self._members.jobs.get(decision.job)
        match decision:
            case Assign():
                return self._assign(decision, out, at, now)
            case AdmitJob() if job is not None:
                if job.admit():
                    out.append(Record(ROOM, decision.job, job.record))
                out += job.notify(JobAdmitted(job=decision.job))
            case TellWaiting() if job is not None:
                job.wait(decision.why, never=decision.never)
                out += job.notify(job.waiting())
            case SetPriority() if job is not None:
                # The next agent has it, too, while the master is away.
                if self._members.set_priority(job.record, decision):
                    out.append(Record(ROOM, decision.job, job.record))
                self._queues.set_priority(decision.job, decision.priority, now)
                out += self._slot_grants.recalls()
            case TellPlaced() | TellEnded() | TellStuck() if job is not None:
                out += tasks.apply(job, decision)
            case CancelJob() if job is not None:
                out += self._lifecycle.cancelled(job, decision, now)
            case TellStages():  # the job may have no other record here yet
                self._executors.surrogate.stages_ended(decision.job, decision.ended)
                out += self._elasticity.stage_ended(decision.job, decision.ended, now)
            case Withdraw() | Promote():
                return self._change(decision, out, at, now)
            case _:
                return f"unknown job {decision.job!r}"
        return ""

    def _assign(self, decision: Assign, out: list[Instruction], at: float, now: float) -> str:
        """Take a task in; its job is told at once if it was registered here, without another message of the master."""
        why = self._placed.assign(decision, out, at, now)
        job = self._members.jobs.get(decision.job)
        if not why and job is not None and job.record.here:
            placed = TellPlaced(job=decision.job, task=decision.request.task, node=self._node)
            out += tasks.apply(job, placed)
        return why

    def _change(self, decision: Withdraw | Promote, out: list[Instruction], at: float, now: float) -> str:
        """Change a task that this node holds."""
        held = self._held.by_key.get((decision.job, decision.task))
        if held is None:
            return f"task {decision.task!r} of {decision.job} is not here"
        if isinstance(decision, Promote):
            return self._placed.promote(held, out, at, now)
        out += self._lifecycle.withdraw(held, decision.why or "withdrawn by the master", now, again=decision.again)
        return ""
