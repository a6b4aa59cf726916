"""A node of an agent with its surroundings: a clock, clients, a master's decisions, and a journal that outlives it."""

from __future__ import annotations

import dataclasses
from typing import Any, Self, TypeVar

import msgspec

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import CancelledJob, ContainerRecord, HeldTask, JobRecord, TaskEnd, Waits
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from agent.http_documents import LinkStatus, Status
from agent.status import status_document
from penstock.model import Capacity, ContainerSpec, KindAmounts, MonotaskSpec, ResourceKind, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Complete, Completion, Launch, RegisterJob, Submit
from penstock.wire.cluster_api import Draining
from penstock.wire.master_api import Assign, AwaitedTask, Decided

T = TypeVar("T")
#: The records of the journal, by room.
_ROOMS: dict[str, Any] = {
    "jobs": JobRecord,
    "tasks": HeldTask,
    "containers": ContainerRecord,
    "ends": TaskEnd,
    "awaited": AwaitedTask,
    "cancelled": CancelledJob,
    "node": Draining,
    "waits": Waits,
}
#: Those of which ``Recovered`` has a list.
_LISTED = ("jobs", "tasks", "containers", "ends", "awaited", "cancelled")
MIB = 1 << 20
GIB = 1 << 30


def status_of(node: Node, **given: Any) -> Status:
    """Return the status of a node without a master; ``given`` are arguments of :func:`status_document`."""
    own: dict[str, Any] = {"enforcement": {}, "master": LinkStatus(address="", linked=False), "events": []}
    return status_document(node, started_at=0.0, **{**own, **given})


class NodeBed:
    """A node and all that it has instructed since a test last cleared ``done``.

    ``settings`` are fields of :class:`NodeSettings`. A job of the master's is ``JOB`` where a test names none.
    """

    JOB = "other-1"

    def __init__(self, *, cores: float = 4, memory_bytes: int = 4 * GIB, **settings: Any) -> None:
        capacity = Capacity(cores=cores, memory_bytes=memory_bytes)
        self.settings = NodeSettings(
            **{"node": "n", "instance": "x", "capacity": capacity, "has_master": True, **settings}
        )
        self.node = Node(self.settings)
        self.now = 0.0
        self.epoch_s = 1e9  # the wall clock's time when the node's clock was at 0
        self.done: list[i.Instruction] = []
        self.journal: dict[tuple[str, str], bytes] = {}

    @property
    def wall_s(self) -> float:
        """The wall clock's time, in seconds."""
        return self.epoch_s + self.now

    # ------------------------------------------------------------ events and their instructions

    def send(self, event: e.Event) -> Any:
        """Let the node handle an event; return its answer to the client or the master, if there is one."""
        told = self.node.handle(event, self.now)
        self.done += told
        for one in told:
            if isinstance(one, i.Record):
                self.journal.pop((one.room, one.key), None)
                if one.value is not None:
                    self.journal[one.room, one.key] = msgspec.msgpack.encode(one.value)
            self.hear(one)
        return next((one.result for one in told if isinstance(one, i.Reply)), None)

    def handle(self, event: e.Event) -> list[i.Instruction]:
        """Let the node handle an event; return all that it instructs."""
        before = len(self.done)
        self.send(event)
        return self.done[before:]

    def hear(self, one: i.Instruction) -> None:
        """Carry out an instruction; a test's own bed defines how."""

    def given(self, kind: type[T]) -> list[T]:
        """Return the instructions of one kind, in order."""
        return [one for one in self.done if isinstance(one, kind)]

    def to_master(self, kind: type[T]) -> list[T]:
        """Return the messages to the master of one kind."""
        return [one.params for one in self.given(i.SendToMaster) if isinstance(one.params, kind)]

    # ------------------------------------------------------------ the master

    def decide(self, *decisions: Any) -> list[str]:
        """Let the master decide; return why decisions were refused."""
        answer = self.send(e.Decided(self.node.decided + 1, list(decisions), self.wall_s))
        assert isinstance(answer, Decided)
        return [refusal.reason for refusal in answer.refused]

    def assign_request(
        self, request: TaskRequest, *, job: str = "", user: str = "eve", origin: str = "o", **how: Any
    ) -> list[str]:
        """Let the master assign a task; return why it was refused. ``how`` are fields of :class:`Assign`."""
        fields: dict[str, Any] = {"stage": "s", "priority": 0.0, **how}
        return self.decide(Assign(job=job or self.JOB, user=user, origin=origin, request=request, **fields))

    def command(self, task: str, *, spec: dict[str, Any] | None = None, **how: Any) -> list[str]:
        """Let the master assign a command; ``how`` are fields of :class:`TaskRequest` or :class:`Assign`."""
        of_request = {name: how.pop(name) for name in TaskRequest.__struct_fields__ if name in how}
        of_request.setdefault("usage", KindAmounts(cpu=1.0))
        of_request.setdefault("command", ContainerSpec(argv=("x",), **(spec or {})))
        return self.assign_request(TaskRequest(task=task, **of_request), **how)

    def container(self, task: str, job: str = "") -> str:
        """Return the container of a placed command."""
        return self.node.held.by_key[job or self.JOB, task].container

    def record(self, task: str) -> ContainerRecord:
        """Return the record of a placed command's container."""
        return self.node.containers.live[self.container(task)]

    # ------------------------------------------------------------ clients

    def open(self, session: int = 1, user: str = "eve", **fields: Any) -> None:
        """Open a connection of a user."""
        self.send(e.SessionOpened(session, user, "c", **fields))

    def register(self, session: int = 1, **request: Any) -> str:
        """Register a job, or join it; return its id."""
        return str(self.send(e.JobRegistered(session, RegisterJob(name="j", **request), self.wall_s)).job)

    def submit(
        self, session: int, job: str, *ids: int, kind: ResourceKind = ResourceKind.CPU, size: int = 1, **more: Any
    ) -> None:
        """Submit monotasks."""
        self.send(
            e.Requested(
                m.SUBMIT,
                session,
                Submit(job=job, monotasks=[MonotaskSpec(id=one, kind=kind, input_bytes=size, **more) for one in ids]),
            )
        )

    def complete(self, session: int, job: str, *ids: int) -> None:
        """Report monotasks as completed."""
        self.send(e.Requested(m.COMPLETE, session, Complete(job=job, monotasks=[Completion(id=one) for one in ids])))

    def launch(self, session: int = 1, **spec: Any) -> str:
        """Ask for a container; return its id."""
        return str(
            self.send(e.Requested(m.LAUNCH, session, Launch(container=ContainerSpec(**{"argv": ("x",), **spec}))))
        )

    # ------------------------------------------------------------ the launcher and the clock

    def begin(self, container: str, pid: int = 7) -> None:
        """Report that a container has started."""
        self.send(e.ContainerStarted(container, pid, {}, self.wall_s))

    def exit(self, container: str, status: int | None = 0, cpu_s: float = 1.0) -> None:
        """Report that a container has ended."""
        self.send(e.ContainerExited(container, status, None, cpu_s, 0, 0, self.wall_s))

    def sampled(self, uses: dict[str, ContainerUse] | None = None, host: HostUse | None = None) -> None:
        """Let a sample be taken, of containers by their ids."""
        self.send(e.Sampled(Snapshot(self.now, 1.0, host or HostUse(), uses or {}), self.wall_s))

    # ------------------------------------------------------------ the next agent

    def last_count(self) -> dict[str, Any]:
        """Return the fields of ``Recovered`` that an agent which stops now records for the next one."""
        count = self.node.attained.last_count(self.now)
        return {name: getattr(count, name) for name in ("cpu_s", "service_s", "own", "ended_s")}

    def of(self, room: str) -> list[Any]:
        """Return the journal's records of one room."""
        return [
            msgspec.msgpack.decode(data, type=_ROOMS[room])
            for (where, _), data in self.journal.items()
            if where == room
        ]

    def restart(self, *running: str, after_s: float = 0.0, now: float = 0.0, **found: Any) -> Self:
        """Start another agent from the journal, on a clock of its own; ``found`` are fields of ``Recovered``."""
        at = self.wall_s + after_s
        self.settings = dataclasses.replace(self.settings, instance=self.settings.instance + "x")
        self.node, self.done = Node(self.settings), []
        self.now, self.epoch_s = now, at - now
        rooms: dict[str, Any] = {room: self.of(room) for room in _LISTED}
        alone = {name: next(iter(self.of(room)), None) for name, room in (("draining", "node"), ("waits", "waits"))}
        recovered = {"exits_to_come": frozenset(), "running": dict.fromkeys(running, 7), **rooms, **alone, **found}
        self.send(e.Recovered(at=at, **recovered))
        return self
