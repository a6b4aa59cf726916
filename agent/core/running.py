"""Commands on the node: those that a connection launches at once, and those that wait for a slot like any monotask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agent.core import elasticity, floors, quotas
from agent.core import events as e
from agent.core.confinement import confine
from agent.core.containers import ROOM, how_it_ended
from agent.core.instructions import (
    AdoptProcess,
    Confine,
    Instruction,
    Notify,
    Record,
    RemoveContainer,
    Reply,
)
from agent.core.records import ContainerRecord, ContainerState, confinement_of
from agent.queues import COMMANDS, beside
from penstock.model import ContainerSpec, Ended, EndedBy, Limits
from penstock.model.reading import explained
from penstock.wire.agent_api import Completion, ContainerEnded, Done, Launched
from penstock.wire.errors import bad_request, refused

if TYPE_CHECKING:
    from agent.core.node import Node


def launch_requested(node: Node, event: e.LaunchRequested, now: float) -> list[Instruction]:
    """Start a command if the node can keep its promise, or, for an opportunistic one, if the slack has room for it."""
    record = admit(node, event.session, event.spec)
    return [Reply(record.container), *node.containers.add(record)]


def adopt_requested(node: Node, event: e.AdoptRequested, now: float) -> list[Instruction]:
    """Take in a process as if it had been started here. It does not end with the connection.

    The launcher, which can inspect the process, checks its owner. A client whose own process is taken in runs in that
    container from now on, and may already do so.
    """
    if event.own and (there := node.containers.live.get(event.inside)) is not None:
        return is_inside(node, event.session, there, event.pid, own=True)
    record = admit(node, event.session, msgspec.structs.replace(event.spec, detach=True))
    record.adopted, record.adopts = True, event.pid
    if event.own:
        node.sessions[event.session].container = record.container
    adopt = AdoptProcess(record.container, record.user, record.spec, event.pid, event.tree, record.rank_weight)
    return [Reply(record.container), *node.containers.add(record, adopt)]


def is_inside(node: Node, opened: int, record: ContainerRecord, pid: int, *, own: bool) -> list[Instruction]:
    """Reply with the container that a process is in already; it becomes the connection's if the process is its ``own``.

    Raises:
        RpcError: ``refused``: the container is another user's.
    """
    session = node.sessions[opened]
    if record.user != session.user:
        raise refused(f"process {pid} is in container {record.container!r} of {record.user}", field="pid")
    if own:
        session.container = record.container
    reply = Reply(Launched(container=record.container, pid=pid, not_enforced=record.not_enforced))
    return [reply, *(node.rank() if own and session.jobs else ())]


def admit(node: Node, opened: int, spec: ContainerSpec) -> ContainerRecord:
    """Create a record if the node can promise the container's resources.

    Raises:
        RpcError: ``refused``: it cannot.
    """
    session = node.sessions[opened]
    quotas.check_container(session, node.settings.quotas, node.containers.live.values(), spec)
    floors.check_limits(spec.limits, "container.limits.")
    ledger = node.stock.ledger(node.now)
    if spec.opportunistic:
        why = ledger.refuse_opportunistic(spec.cpu_cores, spec.memory_bytes, node.slack.t_alloc)
        remedy = "try later, or without --opportunistic"
    else:
        why = ledger.refuse_regular(spec.cpu_cores, spec.memory_bytes)
        why = why or ledger.refuse_network(spec.network_bytes_per_s, node.settings.link_bytes_per_s)
        remedy = "ask for less, wait until something ends, or run it opportunistic"
    if why:
        most = ledger.refuse_ever(spec.cpu_cores, spec.memory_bytes, node.slack.t_alloc if spec.opportunistic else 1.0)
        if most:
            raise refused(f"this node cannot promise that: {most}", remedy="ask for less")
        raise refused(f"this node cannot promise that: {why}", remedy=remedy)
    record = ContainerRecord(
        container=node.ids.fresh("c-"),
        user=session.user,
        spec=spec,
        opportunistic=spec.opportunistic,
    )
    record.rank_weight = node.ranks.first_weight(record)
    session.attached.add(record.container)
    session.launched.add(record.container)
    return record


def attach_requested(node: Node, event: e.AttachRequested, now: float) -> list[Instruction]:
    """Notify this connection of the container's end; a container without a connection becomes this one's."""
    record = container_of(node, event.session, event.container)
    session = node.sessions[event.session]
    session.attached.add(event.container)
    if record.ended is not None:
        over = ContainerEnded(container=event.container, ended=record.ended)
        return [Reply(Done()), Notify(event.session, "container_ended", over)]
    if not any(event.container in other.launched for other in node.sessions.values()):
        session.launched.add(event.container)
    return [Reply(Done())]


def kill_requested(node: Node, event: e.KillRequested, now: float) -> list[Instruction]:
    """End a container at a user's request."""
    record = container_of(node, event.session, event.container)
    by = node.sessions[event.session].user
    return [Reply(Done()), *node.containers.stop(record.container, EndedBy.CANCELLED, f"cancelled by {by}")]


def container_of(node: Node, session: int, container: str) -> ContainerRecord:
    """Return a container that this session may access.

    Raises:
        RpcError: ``bad_request``: no such container; ``refused``: another user's container.
    """
    record = node.containers.find(container)
    if record is None:
        raise bad_request(f"unknown container {container[:128]!r}", field="container")
    opened = node.sessions[session]
    if record.user != opened.user and not opened.operator:
        raise refused(f"container {container!r} belongs to {record.user}", field="container")
    return record


def lend_requested(node: Node, event: e.LendRequested, now: float) -> list[Instruction]:
    """Take in a process and its descendants for a job. A process that is in a container already stays in it."""
    job = node.members.job_of(event.session, event.job, member=False)
    record = node.borrowing.holder(event)
    if record is None:
        record = admit(node, event.session, ContainerSpec(argv=event.argv, name=job.record.name, detach=True))
        return node.borrowing.lend(event, record)
    instructions = is_inside(node, event.session, record, event.pid, own=event.own)
    claimed = node.borrowing.claim(event, record)
    return [*instructions, *claimed, *(node.rank() if claimed else ())]


def given_back(node: Node, event: e.GivenBack, now: float) -> list[Instruction]:
    """Remove a container that was given back; if that failed, it stays."""
    record = node.containers.live.get(event.container)
    if record is None:
        return []  # it ended meanwhile
    if event.why_not:
        return node.borrowing.stays(event, record)
    wanted = node.borrowing.wanted(record.container)
    instructions = end_container(node, record, node.borrowing.how_it_ended(event, record), now)
    return instructions + (node.borrowing.lend_anew(record, wanted) if wanted else [])


def container_started(node: Node, event: e.ContainerStarted, now: float) -> list[Instruction]:
    """Record that a container runs, and apply changes made while it was starting."""
    if event.container not in node.containers.live:
        return []  # a dying launcher had reported its end, too, which was read first
    instructions = node.containers.started(event.container, event.pid, event.not_enforced, event.at)
    record = node.containers.live[event.container]
    if record.executor is not None:
        node.executors.started(record, event.at, now)
    if record.state is ContainerState.RUNNING:
        wanted = confinement_of(record)
        if wanted != confine(
            record.spec,
            record.spec.limits,
            opportunistic=record.spec.opportunistic,
            rank_weight=record.rank_weight,
            borrowed=record.borrowed,
        ):
            instructions.append(Confine(event.container, wanted))
    if event.orphaned:
        instructions += node.containers.orphan(event.container)
    if record.opportunistic:
        instructions.append(node.ranks.reclassed(record))
    if not node.ranks.knows(record):
        instructions += [*node.rank(), *node.ranks.look(now)]
    return instructions + node.borrowing.give_back(record)


def launcher_lost(node: Node, event: e.LauncherLost, now: float) -> list[Instruction]:
    """Continue without the launcher. Containers that are starting are not known to be its children yet."""
    instructions: list[Instruction] = []
    for record in list(node.containers.live.values()):
        if record.pid and not record.orphaned:
            instructions += node.containers.orphan(record.container)
    return instructions


def container_not_started(node: Node, event: e.ContainerNotStarted, now: float) -> list[Instruction]:
    """Record that a container could not be started."""
    record = node.containers.live.get(event.container)
    if record is None:
        return []  # as in container_started
    ended = Ended(
        by=record.stopping_by or EndedBy.FAILED,
        exit_status=event.exit_status,
        reason=record.stopping_reason or event.message,
    )
    return end_container(node, record, ended, now)


def container_exited(node: Node, event: e.ContainerExited, now: float) -> list[Instruction]:
    """Record the exit of a container."""
    record = node.containers.live.get(event.container)
    if record is None:  # an earlier agent recorded its end, and died before all of it was removed
        return [RemoveContainer(event.container)]
    node.preempting.exited(event.container, now)
    return end_container(node, record, how_it_ended(record, event), now)


def end_container(node: Node, record: ContainerRecord, ended: Ended, now: float) -> list[Instruction]:
    """End a container: notify those waiting, free its resources, start the next in order."""
    container = record.container
    node.preempting.forget(container)
    node.elasticity.forget(container)
    node.executors.ended(container, ended.cpu_seconds, now)
    moves_up = node.ranks.ended(record, ended.cpu_seconds, now)
    held = node.held.by_key.get((record.job, record.task)) if record.task else None
    instructions: list[Instruction] = []
    if held is not None and held.container == container:  # first, or an agent that dies here would run it again
        instructions += node.held.command_ended(held, ended)
    instructions += node.containers.end(container, ended)
    node.attained.container_gone(record.job, node.jobs, node.containers.live.values())
    over = ContainerEnded(container=container, ended=ended)
    for session in node.sessions.values():
        if container in session.attached:
            session.attached.discard(container)
            session.launched.discard(container)
            instructions.append(Notify(session.session, "container_ended", over))
        if session.container == container:
            session.container = ""
        session.lent.pop(container, None)
    if record.job in node.jobs and record.kind is not None:
        completion = [Completion(id=record.task, failed=not ended.ok)]
        granted = node.queues.complete(COMMANDS, record.job, completion, now)
        instructions += node.granting.granted(granted, now)
    elif record.job in node.jobs and record.task:
        beside.end(node.queues, COMMANDS, record.job, record.task, now, failed=not ended.ok)
    return instructions + node.lifecycle.forget_guest(record.job, now) + (node.rank() if moves_up else [])


# ---------------------------------------------------------------- placed commands


# ---------------------------------------------------------------- limits that change


def resize_requested(node: Node, event: e.ResizeRequested, now: float) -> list[Instruction]:
    """Set other limits. A container that follows a profile must stop that first, so that only one source sets
    limits.
    """
    record = container_of(node, event.session, event.container)
    _must_live(record)
    if record.profile is not None:
        _must_be_nobodys(record)
        raise refused(f"{record.container} follows a profile", field="container", remedy="follow with null first")
    try:
        limits = record.limits.changed(event.limits)
    except msgspec.ValidationError as error:
        at, wrong = explained(error, Limits)
        raise bad_request(wrong, field=f"limits.{at}" if at else "limits") from None
    floors.check_changes(event.limits)
    if limits.pids_max != record.limits.pids_max:
        quotas.check_pids(node.sessions[event.session], node.settings.quotas, limits)
    instructions = elasticity.change(record, limits)
    if instructions:
        instructions.insert(0, Record(ROOM, record.container, record))
    return [Reply(record.container), *instructions]


def follow_requested(node: Node, event: e.FollowRequested, now: float) -> list[Instruction]:
    """Follow the profile from now on; None: keep the present limits."""
    record = container_of(node, event.session, event.container)
    _must_live(record)
    _must_be_nobodys(record)
    if event.profile is not None:
        floors.check_profile(event.profile)
    record.profile, record.profile_at = event.profile, event.at
    if event.profile is None:
        node.elasticity.forget(record.container)
        return [Reply(Done()), Record(ROOM, record.container, record)]
    node.elasticity.follow(record, now - event.since_s)
    instructions = elasticity.change(record, node.elasticity.limits(record, now))
    return [Reply(Done()), Record(ROOM, record.container, record), *instructions]


def confined(node: Node, event: e.Confined, now: float) -> list[Instruction]:
    """Record which settings the kernel does not enforce."""
    node.containers.confined(event.container, event.not_enforced)
    return []


def _must_live(record: ContainerRecord) -> None:
    if record.ended is not None or record.state is ContainerState.STOPPING:
        raise refused(f"container {record.container} has ended", field="container")


def _must_be_nobodys(record: ContainerRecord) -> None:
    if record.executor is not None:
        raise refused(
            f"{record.container} is an executor: its limits follow its predicted demand",
            field="container",
            remedy="give it `limits` when it is submitted: they are its bounds",
        )
