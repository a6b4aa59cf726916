"""A master's core and agents that follow its decisions: the tests of its messages use them."""

from __future__ import annotations

from functools import reduce
from typing import Any

from msgspec import structs

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import Keep, SendDecisions
from master.http_documents import JobStatus, NodeStatus, Status
from master.status import status_document
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.model.job_state import JobStanding
from penstock.model.work import Opportunistic
from penstock.wire import master_api as api
from penstock.wire.jobs_api import JobView

MB = 1_000_000
EXIT = Ended(by=EndedBy.EXIT, exit_status=0)


class Bed:
    """A cluster whose agents follow their decisions, unless a test decides otherwise."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = Cluster(MasterSettings(**{"gather_s": 0.0, **settings}))
        self.now = 0.0
        self.sent: list[tuple[str, api.AnyDecision]] = []
        self.other: list[object] = []
        self.numbers: dict[str, int] = {}
        self.answering = True
        self.refused: set[str] = set()  # tasks that every agent refuses

    def serve(self, event: e.Event) -> list[tuple[str, api.AnyDecision]]:
        """Handle an event; return the decisions because of it; everything is answered at once."""
        before = len(self.sent)
        todo = [event]
        while todo:
            for instruction in self.cluster.handle(todo.pop(0), self.now):
                if isinstance(instruction, SendDecisions):
                    self.sent += [(instruction.node, decision) for decision in instruction.decisions]
                    self.numbers[instruction.node] = instruction.number
                    if self.answering:
                        refusals = [
                            api.Refusal(index=index, reason="full")
                            for index, one in enumerate(instruction.decisions)
                            if isinstance(one, api.Assign) and one.request.task in self.refused
                        ]
                        todo.append(e.Answered(instruction.node, instruction.number, refusals))
                else:
                    self.other.append(instruction)
        return self.sent[before:]

    def node(self, name: str, **more: Any) -> list[tuple[str, api.AnyDecision]]:
        values: dict[str, Any] = {
            "capacity": Capacity(cores=4, memory_bytes=1000 * MB),
            "load": load(),
            "complete": True,
        }
        return self.serve(e.Received(name, api.Register(protocol=1, node=name, version="0", **{**values, **more})))

    def heartbeat(self, name: str, decided: int | None = None, **more: Any) -> None:
        known = self.numbers.get(name, 0) if decided is None else decided
        self.serve(e.Received(name, api.Heartbeat(load=load(**more), decided=known)))

    def job(self, origin: str, job: str = "j", memory: int = 0, at: float = 0.0, **more: Any) -> list[Any]:
        return self.serve(e.Received(origin, job_state(job, memory, at, **more)))

    def ready(self, origin: str, *tasks: TaskRequest, job: str = "j", opportunistic: Opportunistic = False) -> None:
        self.serve(
            e.Received(origin, api.ReadyTasks(job=job, stage="s", tasks=list(tasks), opportunistic=opportunistic))
        )

    def round(self, after_s: float = 0.1) -> list[tuple[str, str]]:
        """Run a round; return (task, node) of the tasks assigned in it."""
        self.now += after_s
        decided = self.serve(e.RoundDue(self.now))
        return [(d.request.task, node) for node, d in decided if isinstance(d, api.Assign)]

    def successor(self) -> Bed:
        """Return a master that gets the stored records of this one; its nodes have yet to register."""
        kept = self.kept()
        made = Bed()
        made.cluster = Cluster(self.cluster.settings)
        made.now = self.now
        needed = [(name, needed) for name, needed in kept.needed.items() if needed is not None]
        made.serve(e.StateRestored({}, [], needed=needed, lengths=kept.lengths))
        return made

    def kept(self) -> Keep:
        """Return the records that should be stored by now."""
        return reduce(Keep.then, (one for one in self.other if isinstance(one, Keep)), Keep())

    def listed(self, job: str = "j") -> JobView:
        """The job as its user sees it."""
        view = self.cluster.listing.find(job)
        assert view is not None
        return view

    def decisions_of(self, kind: type[api.AnyDecision]) -> list[tuple[str, Any]]:
        return [(node, decision) for node, decision in self.sent if isinstance(decision, kind)]


def job_state(job: str, memory: int = 0, at: float = 0.0, **more: Any) -> api.JobState:
    values = {"name": job, "user": "u", "memory_bytes": memory, "priority": 0.0, "submitted_at": at, **more}
    return api.JobState(job=job, **values)


def placed_task(task: str, job: str = "j", memory: int = 0, **more: Any) -> api.PlacedTask:
    """Return a task of the stage ``s`` that a node reports to hold for the job's origin ``a``."""
    values = {"remaining": KindAmounts(), "memory_bytes": memory * MB, "command": True, **more}
    return api.PlacedTask(job=job, stage="s", task=task, origin="a", **values)


def load(idle: tuple[float, float, float] = (4, 1, 2), **more: Any) -> api.Load:
    values = {"rates": KindAmounts(), "pending": KindAmounts(), **more}
    return api.Load(idle=KindAmounts(*idle), **values)


def task(name: str, memory: int = 0, cpu: float = 1, **more: Any) -> TaskRequest:
    return TaskRequest(task=name, usage=KindAmounts(cpu=cpu * MB), memory_bytes=memory * MB, **more)


def command(name: str, memory: int = 0, cores: float = 0.0, **more: Any) -> TaskRequest:
    return task(name, memory, command=ContainerSpec(argv=("true",), cpu_cores=cores), **more)


def master_status(**changed: Any) -> Status:
    """The status of an empty cluster, with other values for some keys."""
    return structs.replace(status_document(Cluster(MasterSettings()), 0.0), **changed)


def job_row(user: str, state: str = "admitted", **more: Any) -> JobStatus:
    """A job of the status."""
    texts, numbers = ("name", "origin", "waits", "reservation", "reason"), ("memory_bytes", "slots", "ready", "placed")
    own = dict.fromkeys(texts, "") | dict.fromkeys((*numbers, "submitted_at", "priority", "service_container_s"), 0)
    own |= dict.fromkeys(("queue", "expected_left_s", "known_jobs")) | {"rank": 0, "stages": {}, "progress": []} | more
    return JobStatus(user=user, state=JobStanding(state), **own)


def node_row(**more: Any) -> NodeStatus:
    """A connected node of the status."""
    numbers = (
        "t_alloc", "memory_free_bytes", "external_memory_bytes", "cores_free", "kept_cores", "kept_memory_bytes",
        "tasks", "opportunistic_tasks",
    )  # fmt: skip
    own = dict.fromkeys((*numbers, "unanswered"), 0) | dict.fromkeys(("draining", "away_s")) | {"load": load()} | more
    capacity = Capacity(cores=4, memory_bytes=1000 * MB)
    return NodeStatus(state="connected", version="0", capacity=capacity, rates={}, **own)


def bed(*nodes: str, **settings: Any) -> Bed:
    made = Bed(**settings)
    for name in nodes:
        made.node(name)
    return made
