"""Processes that clients lend for the rank of a job: they form containers of that job until it is over.

The processes were not started in a container, so these containers do not change how they behave: they do not end with a
connection, and their own children outlive them. When the job is over, its processes return to their former cgroups,
unless another job was named for them meanwhile, for example when a framework's workers agree on one job.
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
    """Take in a process and its descendants for a job. A process that is in a container already stays in it."""
    job = node.members.job_of(event.session, event.job, member=False)
    session = node.sessions[event.session]
    record = _holder(node, event)
    if record is not None:
        return [*running.is_inside(node, event.session, record, event.pid, own=event.own), *_claim(node, event, record)]
    spec = ContainerSpec(argv=event.argv, name=job.record.name, detach=True)
    record = running.admit(node, event.session, spec)
    session.attached.discard(record.container)  # only its parent sees how it exits
    session.launched.discard(record.container)
    session.lent[record.container] = event.job
    record.adopts, record.job, record.nice_before = event.pid, event.job, event.nice
    if event.own:
        session.container = record.container
    return [Reply(record.container), *_take_in(node, record)]


def job_over(node: Node, job: str, merged_into: str = "") -> list[Instruction]:
    """Move the processes of an ended job to the job that continues its work, or give them back."""
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
    """Give a running container back if its job is over."""
    return [] if record.job in node.jobs else _give_back(node, record)


def agent_stops(node: Node, session: Session) -> list[Instruction]:
    """Give back the containers that a connection has lent; it lends them anew to the next agent."""
    lent = [record for name in session.lent if (record := node.containers.live.get(name)) is not None]
    return [one for record in lent for one in _give_back(node, record)]


def given_back(node: Node, event: e.GivenBack, now: float) -> list[Instruction]:
    """Remove a container that was given back; if that failed, treat it as an adopted one."""
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
        each.session: job
        for each in node.sessions.values()
        if (job := each.lent.get(record.container)) in node.members.jobs
    }
    instructions = running.end_container(node, record, ended, now)
    if not wanted:
        return instructions
    anew = ContainerRecord(  # it was lent for another job while it was given back
        container=node.ids.fresh("c-"), user=record.user, spec=record.spec, opportunistic=False,
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
    """Return the container that holds the process, or that is about to."""
    if (record := node.containers.live.get(event.inside)) is not None:
        return record
    live = node.containers.live.values()
    return next((one for one in live if one.adopts == event.pid and one.state is ContainerState.STARTING), None)


def _claim(node: Node, event: e.LendRequested, record: ContainerRecord) -> list[Instruction]:
    """Record the job that also wants the container, which takes it over when the present job ends."""
    if not record.borrowed:
        return []
    node.sessions[event.session].lent[record.container] = event.job
    if record.job in node.jobs:
        return []
    record.job = event.job
    return [Record(ROOM, record.container, record), *node.rank()]
