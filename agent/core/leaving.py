"""Connections that end: free their slots, and end the jobs that no other connection has joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core import borrowing, running, tasks
from agent.core.events import JobEndRequested, JobLeft
from agent.core.instructions import Instruction, Record, Reply, TellMaster
from penstock.wire.agent_api import Done
from penstock.wire.errors import bad_request
from penstock.wire.master_api import JobEnded

if TYPE_CHECKING:
    from agent.core.node import Node
    from agent.core.records import Job, Session


def announced(node: Node, event: JobLeft) -> list[Instruction]:
    """Record that a connection, once it closes, leaves a job in order."""
    node.members.job_of(event.session, event.job)
    if event.merged_into == event.job:
        raise bad_request("a job cannot be merged into itself", field="merged_into")
    node.sessions[event.session].left[event.job] = event.merged_into
    return [Reply(Done())]


def give_back(node: Node, session: Session, now: float) -> list[Instruction]:
    """Free the slots of a closed connection; end the jobs that no other connection has joined."""
    instructions = node.granting.granted(node.queues.drop_session(session.session, sorted(session.jobs), now), now)
    for job in [node.jobs[name] for name in sorted(session.jobs) if name in node.jobs]:
        job.sessions.discard(session.session)
        if not job.sessions:
            merged_into = session.left.get(job.record.job)
            instructions += abandoned(node, job, now, session.disconnected if merged_into is None else "", merged_into)
    return instructions


def orphans_left(node: Node, now: float) -> list[Instruction]:
    """End jobs whose frameworks did not return in time after a restart of the agent."""
    since = [(job, job.orphan_since) for job in node.jobs.values()]
    late = [job for job, at in since if at is not None and now - at > node.settings.rejoin_s]
    why = "its framework did not come back after a restart of the agent"
    return [instruction for job in late for instruction in abandoned(node, job, now, why)]


def abandoned(node: Node, job: Job, now: float, why: str, merged_into: str | None = None) -> list[Instruction]:
    """End a job without connections. Without ``why``, its last connection left it in order: the job is done."""
    if not job.record.here:
        return running.forget_guest(node, job.record.job)
    return end_job(node, job, now, why, done=not why, merged_into=merged_into or "")


def end_job(
    node: Node, job: Job, now: float, why: str = "", *, done: bool = False, merged_into: str = ""
) -> list[Instruction]:
    """End a job: its queues and tasks here at once, those on other nodes through the master."""
    name = job.record.job
    node.members.remove(job)
    instructions: list[Instruction] = [Record("jobs", name, None), *tasks.forget_ends(job)]
    use = node.attained.over(name, now, node.containers.live.values())
    if job.record.here and node.settings.has_master:
        ended = JobEnded(job=name, why=why, done=done, merged_into=merged_into, use=use)
        instructions.append(TellMaster("job_ended", ended))
    else:
        node.attained.tell(use)
    instructions += node.granting.granted(node.queues.remove_job(name, now), now)
    for held in node.held.of_job(name):
        instructions += running.withdraw(node, held, why or "its job ended", now)
    instructions += borrowing.job_over(node, name, merged_into)
    node.attained.container_gone(name, node.jobs, node.containers.live.values())  # all may belong to another job by now
    return instructions


def end_requested(node: Node, event: JobEndRequested, now: float) -> list[Instruction]:
    """End a job at its framework's request."""
    job = node.members.job_of(event.session, event.job)
    return [Reply(Done()), *end_job(node, job, now)]
