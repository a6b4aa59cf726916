"""Processes that clients lend for the rank of a job: containers of that job, until it is over.

No container held them when they were started, so nothing is expected of a container with them: they end with nobody's
connection, and what they leave behind goes on. A job that is over gives its processes back to where they were, unless
another job was named for them meanwhile, as when the workers of a framework agree on one job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core import events as e
from agent.core import running
from agent.core.containers import ROOM
from agent.core.instructions import AdoptProcess, Confine, GiveBack, Instruction, Record, Reply
from agent.core.records import ContainerRecord, ContainerState, Session, confinement_of
from penstock.model import ContainerSpec, Ended, EndedBy

if TYPE_CHECKING:
    from agent.core.node import Node


def lend_requested(node: Node, event: e.LendRequested, now: float) -> list[Instruction]:
    """Take a process and its descendants in for a job. One that is in a container already stays there."""
    job = node.job_of(event.session, event.job, member=False)
    session = node.sessions[event.session]
    record = _holder(node, event)
    if record is not None:
        return [*running.is_inside(node, event.session, record, event.pid, own=event.own), *_claim(node, event, record)]
    spec = ContainerSpec(argv=event.argv, name=job.record.name, detach=True)
    record = running.admit(node, event.session, spec)
    session.attached.discard(record.container)  # how it ends is its parent's affair
    session.launched.discard(record.container)
    session.lent[record.container] = event.job
    record.adopts, record.job, record.nice_before = event.pid, event.job, event.nice
    if event.own:
        session.container = record.container
    return [Reply(record.container), *_take_in(node, record)]


def job_over(node: Node, job: str, merged_into: str = "") -> list[Instruction]:
    """Give the processes of a job that is forgotten to the job in which its work goes on, or back."""
    instructions: list[Instruction] = []
    for record in node.containers.live.values():
        if not record.borrowed or record.job != job:
            continue
        named = [merged_into, *(session.lent.get(record.container, "") for session in node.sessions.values())]
        record.job = next((each for each in named if each in node.jobs), job)
        instructions.append(Record(ROOM, record.container, record))
        if record.job == job:
            instructions += give_back(node, record)
    return instructions


def give_back(node: Node, record: ContainerRecord) -> list[Instruction]:
    """Give one back that runs and whose job is over."""
    return [] if record.job in node.jobs else _give_back(node, record)


def agent_stops(node: Node, session: Session) -> list[Instruction]:
    """Give back what a connection has lent: nobody ranks it any more. It is lent anew to the next agent."""
    lent = [record for name in session.lent if (record := node.containers.live.get(name)) is not None]
    return [one for record in lent for one in _give_back(node, record)]


def given_back(node: Node, event: e.GivenBack, now: float) -> list[Instruction]:
    """It is no container any more; or, where that cannot be, one like any that was adopted."""
    record = node.containers.live.get(event.container)
    if record is None:
        return []  # it ended meanwhile
    if event.why_not:
        left, record.borrowed, record.job = record.job, False, ""
        node.ranks.keep(record, event.cpu_seconds)
        node.attained.container_gone(left, node.jobs, node.containers.live.values())
        return [Record(ROOM, record.container, record), Confine(record.container, confinement_of(record))]
    ended = Ended(
        by=EndedBy.EXIT,
        reason=f"{'the agent stopped' if record.job in node.jobs else 'its job is over'}: its processes go on",
        cpu_seconds=event.cpu_seconds,
        memory_peak_bytes=event.memory_peak_bytes,
        wall_seconds=max(0.0, event.at - record.started_at),
    )
    wanted = {
        each.session: job for each in node.sessions.values() if (job := each.lent.get(record.container)) in node.jobs
    }
    instructions = running.end_container(node, record, ended, now)
    if not wanted:
        return instructions
    anew = ContainerRecord(  # it was lent for another job while it was given back
        container=node.fresh_id("c-"), user=record.user, spec=record.spec, opportunistic=False,
        adopts=record.adopts, job=next(iter(wanted.values())), nice_before=record.nice_before,
    )  # fmt: skip
    for session, job in wanted.items():
        node.sessions[session].lent[anew.container] = job
    return [*instructions, *_take_in(node, anew)]


def _take_in(node: Node, record: ContainerRecord) -> list[Instruction]:
    record.adopted = record.borrowed = True
    record.rank_weight = node.ranks.first_weight(record)
    adopt = AdoptProcess(
        record.container, record.user, record.spec, record.adopts, True, record.rank_weight, borrow=True
    )
    return node.containers.add(record, adopt)


def _give_back(node: Node, record: ContainerRecord) -> list[Instruction]:
    if not record.borrowed or record.state is not ContainerState.RUNNING:
        return []
    return [GiveBack(record.container, record.pid, record.nice_before, node.ranks.apart(record))]


def _holder(node: Node, event: e.LendRequested) -> ContainerRecord | None:
    """The container that the process is in, or is on its way into."""
    if (record := node.containers.live.get(event.inside)) is not None:
        return record
    live = node.containers.live.values()
    return next((one for one in live if one.adopts == event.pid and one.state is ContainerState.STARTING), None)


def _claim(node: Node, event: e.LendRequested, record: ContainerRecord) -> list[Instruction]:
    """Remember for which job it is wanted, too: that has it once its own is over."""
    if not record.borrowed:
        return []
    node.sessions[event.session].lent[record.container] = event.job
    if record.job in node.jobs:
        return []
    record.job = event.job
    return [Record(ROOM, record.container, record), *node.rank()]
