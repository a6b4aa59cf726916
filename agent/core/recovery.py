"""Restore jobs, tasks and containers after a restart of the agent, including containers without a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core import events as e
from agent.core import running, tasks
from agent.core.containers import ROOM
from agent.core.instructions import Confine, Freeze, Instruction, KillContainer, Record, RemoveContainer
from agent.core.records import ContainerRecord, ContainerState, command_record, confinement_of
from penstock.model import ContainerSpec

if TYPE_CHECKING:
    from agent.core.node import Node


def recovered(node: Node, event: e.Recovered, now: float) -> list[Instruction]:
    """Restore the state: frameworks have ``rejoin_s`` to return to their jobs; containers simply continue."""
    for record in sorted(event.jobs, key=lambda record: (record.place, record.submitted_at, record.job)):
        job, _ = node.lifecycle.add(record, now)
        job.recovered = True
        job.orphan_since = now  # a guest with tasks here stays as long as they do
    node.waits.recovered(node.queues, event.waits, event.at, now)
    first = tasks.take_back_ends(node.jobs, event.ends)
    first += node.containers.take_back_ended([c for c in event.containers if c.ended is not None])
    started_anew = _started_anew(event)
    live = [container for container in event.containers if container.ended is None]
    live += _unrecorded(event)
    for container in live:
        if container.container in started_anew:
            continue
        if container.state is ContainerState.PAUSED and container.container in event.running:
            first.append(Freeze(container.container, frozen=False))  # preemption decides anew whether to freeze it
        container.kind = None  # it gets its slot back with its task, unless the task's end is recorded
        node.containers.take_back(container, event.running.get(container.container, 0))
        if container.profile is not None:
            node.elasticity.follow(container, now - (event.at - (container.profile_at or event.at)))
        if container.executor is not None:
            node.executors.resumed(container, event.at, now)
    for name in sorted(event.orphans):
        first += node.containers.orphan(name) if name in node.containers.live else []
    first += node.containers.watch()
    node.drain.draining = event.draining
    held = node.placed.recovered(event, now) + node.drain.give_back(now)
    return [
        *(one for name in started_anew for one in (Record(ROOM, name, None), RemoveContainer(name))),
        *first,
        *held,
        *_containers(node, event, live, now),
        *_confinements(node, event, now),
        *(one for record in node.containers.live.values() for one in node.borrowing.give_back(record)),
    ]


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
            record = command_record(commands[container])
            record.limits = record.spec.limits
            made.append(record)
        else:
            spec = ContainerSpec(argv=("?",), detach=True)
            user = event.owners.get(container, "")
            made.append(
                ContainerRecord(container=container, user=user, spec=spec, opportunistic=False, unrecorded=True)
            )
    return made


def _confinements(node: Node, event: e.Recovered, now: float) -> list[Instruction]:
    """Confine every container again: a change may have been under way, or another program may have interfered."""
    instructions: list[Instruction] = []
    for record in node.containers.live.values():
        if record.unrecorded:
            continue
        if record.container in event.running and record.state is ContainerState.RUNNING:
            record.limits = node.elasticity.limits(record, now)
            instructions.append(Confine(record.container, confinement_of(record)))
    return instructions


def _containers(node: Node, event: e.Recovered, live: list[ContainerRecord], now: float) -> list[Instruction]:
    """End lost containers, and finish interrupted kills."""
    instructions: list[Instruction] = []
    for record in live:
        container = record.container
        if container in event.running:
            if record.stopping_by is not None:
                instructions.append(KillContainer(container, record.stopping_reason))
        elif container in event.never_began:
            if container in node.containers.live:
                never = e.ContainerNotStarted(
                    container, "the agent was restarted before the command was started: it never ran"
                )
                instructions += running.container_not_started(node, never, now)
        elif container not in event.exits_to_come:
            record.orphaned = True
            gone = e.ContainerExited(container, None, None, 0.0, 0, 0, event.at)
            instructions += running.container_exited(node, gone, now)
    return instructions
