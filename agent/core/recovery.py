"""After a restart of the agent: jobs, tasks and containers are taken back, also a container without a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core import borrowing, draining, executors, running, tasks
from agent.core import events as e
from agent.core.containers import ROOM
from agent.core.instructions import Confine, Freeze, Instruction, KillContainer, Record, RemoveContainer
from agent.core.records import ContainerRecord, ContainerState, confinement_of
from penstock.model import ContainerSpec

if TYPE_CHECKING:
    from agent.core.node import Node


def recovered(node: Node, event: e.Recovered, now: float) -> list[Instruction]:
    """Frameworks have ``rejoin_s`` to come back to their jobs; containers go on as if nothing had happened."""
    for record in sorted(event.jobs, key=lambda record: (record.place, record.submitted_at, record.job)):
        job, _ = node.add_job(record)
        job.recovered = True
        job.orphan_since = now  # a guest whose tasks are here stays for as long as they do
    node.turns.recovered(node, event.waits, event.at, now)
    first = tasks.take_back_ends(node.jobs, event.ends)
    first += node.containers.take_back_ended([c for c in event.containers if c.ended is not None])
    started_anew = _started_anew(event)
    live = [container for container in event.containers if container.ended is None]
    live += _unrecorded(event)
    for container in live:
        if container.container in started_anew:
            continue
        if container.state is ContainerState.PAUSED and container.container in event.running:
            first.append(Freeze(container.container, frozen=False))  # whether it has to stand still is seen anew
        container.kind = None  # it gets its slot back with its task, unless the end of that is recorded already
        node.containers.take_back(container, event.running.get(container.container, 0))
        if container.profile is not None:
            node.elasticity.follow(container, now - (event.at - (container.profile_at or event.at)))
        if container.executor is not None:
            node.executors.resumed(container, event.at, now)
    for name in sorted(event.orphans):
        first += node.containers.orphan(name) if name in node.containers.live else []
    first += node.containers.watch()
    node.draining = event.draining
    held = _tasks(node, event, now) + draining.give_back(node, now)
    return [
        *(one for name in started_anew for one in (Record(ROOM, name, None), RemoveContainer(name))),
        *first,
        *held,
        *_containers(node, event, live, now),
        *_confinements(node, event, now),
        *(one for record in node.containers.live.values() for one in borrowing.give_back(node, record)),
    ]


def _started_anew(event: e.Recovered) -> list[str]:
    """Return the containers of placed commands that never began: their tasks get other containers.

    A command that a connection launched is not started anew: its client has not been told the container's id.
    """
    commands = {held.container for held in event.tasks if held.ended is None}
    return [
        record.container
        for record in event.containers
        if record.container in event.never_began & commands and record.stopping_by is None
    ]


def _unrecorded(event: e.Recovered) -> list[ContainerRecord]:
    """Make records for containers that run without one: of a placed command as its task asks, else as far as known."""
    recorded = {container.container for container in event.containers}
    commands = {held.container: held for held in event.tasks if held.container}
    made: list[ContainerRecord] = []
    for container in sorted(event.running.keys() - recorded):
        if container in commands:
            record = running.command_record(commands[container])
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
    """A change may have been under way, and somebody may have meddled: say again what holds."""
    instructions: list[Instruction] = []
    for record in node.containers.live.values():
        if record.unrecorded:
            continue
        if record.container in event.running and record.state is ContainerState.RUNNING:
            record.limits = node.elasticity.limits(record, now)
            instructions.append(Confine(record.container, confinement_of(record)))
    return instructions


def _tasks(node: Node, event: e.Recovered, now: float) -> list[Instruction]:
    """Tasks hold their memory again; commands wait for their slot again, or hold it if they run."""
    instructions: list[Instruction] = []
    for held in event.tasks:
        if held.ended is not None:
            instructions += node.held.command_ended(held, held.ended)
            continue
        node.held.by_key[held.job, held.task] = held
        alive = held.container in node.containers.live
        if held.job not in node.jobs and not alive:
            held.container = ""
            instructions += running.withdraw(node, held, "its job ended", now)
        elif held.request.executor is not None and not held.opportunistic:
            instructions += executors.take_back(node, held, now, event.at)
        elif held.job not in node.jobs:
            continue  # its job ended while it was being stopped: its container still has to end
        elif held.request.command is not None:
            if alive:  # promoted or not, it has the slot that it is to have
                record = node.containers.live[held.container]
                record.kind = None if held.opportunistic else held.slot
            else:
                held.container = ""
            instructions += running.queue_command(node, held, now, running=alive)
    return instructions


def _containers(node: Node, event: e.Recovered, live: list[ContainerRecord], now: float) -> list[Instruction]:
    """End what is lost, finish the kills that were under way."""
    instructions: list[Instruction] = []
    for record in live:
        container = record.container
        if container in event.running:
            if record.stopping_by is not None:
                instructions.append(KillContainer(container, record.stopping_reason))
        elif container in event.never_began:
            if container in node.containers.live:
                never = e.ContainerNotStarted(container, "the agent was restarted before it was started: it never ran")
                instructions += running.container_not_started(node, never, now)
        elif container not in event.exits_to_come:
            record.orphaned = True
            gone = e.ContainerExited(container, None, None, 0.0, 0, 0, event.at)
            instructions += running.container_exited(node, gone, now)
    return instructions
