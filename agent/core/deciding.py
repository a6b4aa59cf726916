"""The master's decisions are proposals: the node checks each against its own state, and may refuse it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core import draining, elasticity, running, slack, tasks, turns
from agent.core import events as e
from agent.core.instructions import Instruction, Notify, Record, Reply
from agent.core.records import HeldTask
from agent.queues import beyond
from penstock.wire.agent_api import JobRef, JobWaiting
from penstock.wire.master_api import (
    AdmitJob,
    AnyDecision,
    Assign,
    CancelJob,
    Decided,
    Drain,
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

if TYPE_CHECKING:
    from agent.core.node import Node


def decided(node: Node, event: e.Decided, now: float) -> list[Instruction]:
    """Carry out the decisions that are possible; the reply lists those refused, and why."""
    instructions: list[Instruction] = []
    refusals: list[Refusal] = []
    for index, decision in enumerate(event.decisions):
        why = _carry_out(node, decision, instructions, now)
        if why:
            refusals.append(Refusal(index=index, reason=why))
    node.decided = event.number
    if any(isinstance(decision, SetPriority) for decision in event.decisions):
        instructions += node.granting.granted(beyond.reordered(node.queues, now), now)
        instructions += node.rank()  # so that the order is the same on all nodes as soon as they receive it
    return [Reply(Decided(refused=refusals)), *instructions]


def _carry_out(node: Node, decision: AnyDecision, out: list[Instruction], now: float) -> str:
    """Carry out one decision and append its instructions to ``out``; return why it was refused, or ""."""
    if isinstance(decision, Drain):
        out += draining.told(node, decision.draining, now)
        return ""
    job = node.jobs.get(decision.job)
    match decision:
        case Assign():
            return _assign(node, decision, out, now)
        case AdmitJob() if job is not None:
            job.waits = ""
            if not job.record.admitted:
                job.record.admitted = True
                out.append(Record("jobs", decision.job, job.record))
            out += [Notify(s, "job_admitted", JobRef(job=decision.job)) for s in sorted(job.sessions)]
        case TellWaiting() if job is not None:
            job.waits = decision.why
            told = JobWaiting(job=decision.job, why=job.waits, never=decision.never)
            out += [Notify(s, "job_waiting", told) for s in sorted(job.sessions)]
        case SetPriority() if job is not None:
            job.record.priority = decision.priority
            node.queues.set_priority(decision.job, decision.priority, now)
            out += turns.recalls(node.queues, node.jobs)
        case TellPlaced() | TellEnded() | TellStuck() if job is not None:
            out += tasks.tell(job, decision)
        case CancelJob() if job is not None:
            out += node.lifecycle.cancelled(job, decision, now)
        case TellStages():  # the job may have no other record here yet
            node.executors.surrogate.stages_ended(decision.job, decision.ended)
            out += node.elasticity.stage_ended(decision.job, decision.ended, now)
        case Withdraw() | Promote():
            return _change(node, decision, out, now)
        case _:
            return f"unknown job {decision.job!r}"
    return ""


def _change(node: Node, decision: Withdraw | Promote, out: list[Instruction], now: float) -> str:
    """Change a task that this node holds."""
    held = node.held.by_key.get((decision.job, decision.task))
    if held is None:
        return f"task {decision.task!r} of {decision.job} is not here"
    if isinstance(decision, Promote):
        return _promote(node, decision, out, now)
    out += node.lifecycle.withdraw(held, decision.why or "withdrawn by the master", now)
    return ""


def _assign(node: Node, decision: Assign, out: list[Instruction], now: float) -> str:
    """Hold the task's memory and queue its command, if any; refuse a task that would break a promise."""
    request = decision.request
    if (decision.job, request.task) in node.held.by_key:
        return ""  # repeated after a lost connection: it is here already
    if node.draining is not None:
        return draining.REFUSAL
    why = _refuse(node, decision, now)
    waits = bool(why) and decision.opportunistic and request.command is not None and slack.queue_free(node) > 0
    if why and not waits:
        return why
    if decision.job not in node.jobs:
        if decision.origin == node.settings.node:
            return f"job {decision.job!r} has ended"
        out += node.lifecycle.welcome(decision.job, decision.job, decision.user, decision.priority, now)
    node.queues.set_priority(decision.job, decision.priority, now)
    out += turns.recalls(node.queues, node.jobs)
    held = node.held.hold(decision)
    out.append(Record(tasks.ROOM, tasks.journal_key(held.job, held.task), held))
    if request.executor is not None and not decision.opportunistic:
        out += start_executor(node, held, now)
    elif decision.opportunistic and request.command is not None and not waits:
        out += node.granting.start(held, now)
    elif request.command is not None:
        out += node.granting.queue(held, now)
    return ""


def _refuse(node: Node, decision: Assign, now: float) -> str:
    """Return why the task would break a promise, or ""."""
    request, command = decision.request, decision.request.command
    if not decision.opportunistic and request.executor is not None and decision.profile is not None:
        return node.executors.refuse(request, decision.profile, node.ledger(), now)
    cores, network = (command.cpu_cores, command.network_bytes_per_s) if command is not None else (0.0, 0)
    ledger = node.ledger()
    if decision.opportunistic:
        return ledger.refuse_opportunistic(cores, request.memory_bytes, node.threshold.t_alloc)
    why = ledger.refuse_regular(cores, request.memory_bytes)
    return why or ledger.refuse_network(network, node.settings.link_bytes_per_s)


def _promote(node: Node, decision: Promote, out: list[Instruction], now: float) -> str:
    """Make opportunistic work regular in place (UBIS §IV.D), if its promise can be kept."""
    held = node.held.by_key[decision.job, decision.task]
    if not held.opportunistic:
        return ""
    command = held.request.command
    why = node.ledger().refuse_regular(command.cpu_cores if command else 0.0, held.request.memory_bytes)
    needs_slot = command is not None and held.slot is not None
    if not why and needs_slot and node.queues.idle().of(held.request.command_kind) < 1:
        why = f"{held.request.command_kind}: no slot is free"
    if why:
        return why
    held.opportunistic = False
    waited = node.held.waiting.pop((held.job, held.task), None)
    out.append(Record(tasks.ROOM, tasks.journal_key(held.job, held.task), held))
    if waited is not None and held.request.executor is not None:
        out += start_executor(node, held, now)
    elif waited is not None:
        out += node.granting.queue(held, now)
    elif held.container:
        out += running.promote(node, held, now)
    return ""


def start_executor(node: Node, held: HeldTask, now: float) -> list[Instruction]:
    """Start an executor at once; its limits follow its profile, if it has one."""
    instructions = node.granting.start(held, now)
    record = node.containers.live[held.container]
    if held.profile is not None:
        node.executors.follow(held, record, held.profile, now)
        instructions += elasticity.change(record, node.elasticity.limits(record, now))
    return instructions


def take_back_executor(node: Node, held: HeldTask, now: float, at: float) -> list[Instruction]:
    """Resume an executor that outlived an agent, at its place in the profile; start it if it was not started."""
    record = node.containers.live.get(held.container)
    if record is None:
        return start_executor(node, held, now)
    record.kind = None
    if held.job in node.jobs:  # otherwise it is being stopped
        node.granting.queue(held, now, running=True)
    if held.profile is not None:
        record.profile_at = record.profile_at or at  # the agent ended after its start and before ContainerStarted
        node.executors.follow(held, record, held.profile, now - (at - record.profile_at))
    return []
