"""The master's record of a node, of the copies of tasks that it holds, and of the requests to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from master.core import life_cycles
from master.core.job import Key, Task
from master.opportunistic import SlackLimit
from penstock.model import Capacity, KindAmounts, Profile, ResourceKind, TaskRequest
from penstock.model.life_cycle import next_state
from penstock.model.resource_vector import NOTHING, ResourceVector, SlotVector
from penstock.wire.cluster_api import Draining, NodeRanks, Remaining
from penstock.wire.master_api import AnyDecision, Assign, Availability, Load, Register

#: Largest size of one request's decisions; far below the frame limit, and a node processes it in milliseconds.
_REQUEST_BYTES = 1024 * 1024
#: Most reports of a node between two attempts to promote a task that it refuses to promote.
_PROMOTION_REPORTS = 64


@dataclass(slots=True)
class Held:
    """A task's holdings on a node, from the proposal until the node is known to have released them.

    The numbers are those of the ``decide`` requests of the node's present connection; 0 means "before it".
    """

    job: str
    task: str
    usage: KindAmounts
    memory_bytes: int
    opportunistic: bool
    command: bool
    kind: ResourceKind = ResourceKind.CPU
    cores: float = 0.0
    assigned_in: int = 0
    state: life_cycles.CopyState = "new"
    leaving: bool = False  # its node was told to release it: its actions no longer matter, its holdings do
    cancelled: bool = False  # its job may be lost, and come back, before the node has stopped it
    promoted_in: int | None = None
    promotions_refused: int = 0
    promotable_from: int = 0  # the heartbeat count of the node at which its promotion may be proposed again
    queued: bool = False  # sent to wait for slack on the node
    executor: bool = False  # regular, and its limits follow a profile: it neither waits for a slot nor holds one
    profile: Profile | None = None  # as far as it has been sent
    # promised amounts of the resources that the profile leaves out
    outside_profile: ResourceVector = NOTHING
    assigned_at: float = 0.0  # of an executor, monotonic
    user: str = ""  # the job's user

    @classmethod
    def of(cls, task: Task, request: TaskRequest, user: str) -> Held:
        """Return the holdings of a placed task as its origin's request states them; ``user`` is its job's user."""
        command = request.command
        return cls(
            job=task.job,
            task=task.name,
            usage=request.usage,
            memory_bytes=request.memory_bytes,
            opportunistic=task.on_slack,
            command=command is not None,
            kind=request.command_kind,
            cores=command.cpu_cores if command is not None else 0.0,
            executor=task.elastic and not task.on_slack,
            user=user,
        )

    @property
    def key(self) -> Key:
        """Return the task's key in the cluster."""
        return self.job, self.task

    @property
    def accepted(self) -> bool:
        """Return whether the node has accepted it, before or after it was withdrawn."""
        return self.state in {"accepted", "leaving"}

    @property
    def regular(self) -> bool:
        """Return whether its memory is promised; a proposed promotion counts at once."""
        return not self.opportunistic or self.promoted_in is not None

    @property
    def unknown_size(self) -> bool:
        """Return whether it is a command without an estimate of its work."""
        return self.command and self.usage.of(self.kind) <= 0

    def uses_core(self) -> bool:
        """Return whether it will take a CPU slot."""
        return self.usage.cpu > 0 or (self.unknown_size and self.kind is ResourceKind.CPU)

    @property
    def needs_slot(self) -> bool:
        """Return whether it takes slots as a regular task. Executors take none, nor do CPU commands with promised
        cores: their node withholds these cores from its slots.
        """
        return not self.executor and not (self.command and self.cores and self.kind is ResourceKind.CPU)

    @property
    def in_a_slot(self) -> bool:
        """Return whether it takes slots while it runs; opportunistic commands run without one."""
        return self.needs_slot and (self.regular or not self.command)

    def coming(self, decided: int) -> bool:
        """Return whether a Load as of decision ``decided`` does not include it, or not as regular yet."""
        return self.assigned_in > decided or (self.promoted_in or 0) > decided

    def holds(self) -> SlotVector:
        """Return what it holds while placed."""
        cores = self.cores or float(self.uses_core())
        disk = float(self.usage.disk > 0 or (self.unknown_size and self.kind is ResourceKind.DISK))
        network = float(self.usage.network > 0 or (self.unknown_size and self.kind is ResourceKind.NETWORK))
        return SlotVector(cores, disk, network, float(self.memory_bytes))

    def seen_promised(self, decided: int) -> bool:
        """Return whether a Load as of decision ``decided`` counts its memory as promised.

        Answers arrive before the Load: refused or released tasks are no longer held when the Load is read.
        """
        if self.assigned_in > decided:
            return False
        return not self.opportunistic or (self.promoted_in is not None and self.promoted_in <= decided)

    def propose(self, number: int, *, queued: bool) -> None:
        """Record the request that proposes it; ``queued``: it is to wait there for slack."""
        self.state = next_state(life_cycles.COPY, self.state, "proposed")
        self.assigned_in, self.queued = number, queued

    def step(self, event: life_cycles.CopyEvent) -> None:
        """Take the next step of its life on the node. Raises: TransitionError."""
        self.state = next_state(life_cycles.COPY, self.state, event)
        self.leaving = self.state in {"recalled", "leaving"}

    def promotion_refused(self, heartbeats: int) -> None:
        """Record that the node refused its promotion. The node knows more than the master, as of promises of its link;
        each refusal doubles the number of reports until the next attempt.
        """
        self.promoted_in, self.promotable_from = None, heartbeats + min(2**self.promotions_refused, _PROMOTION_REPORTS)
        self.promotions_refused += 1

    def know(self, request: TaskRequest, user: str, *, executor: bool) -> None:
        """Add the parts of the origin's request that a node's report of a task lacks."""
        self.kind, self.user, self.executor = request.command_kind, user or self.user, executor
        if self.profile is None:
            self.cores = request.command.cpu_cores if request.command is not None else 0.0

    def known_before(self, before: Held) -> None:
        """Keep the parts of the record from before the node registered that its report lacks."""
        self.cores, self.kind, self.user = before.cores, before.kind, before.user or self.user
        self.executor, self.profile, self.assigned_at = before.executor, before.profile, before.assigned_at

    def follow(self, profile: Profile, outside_profile: ResourceVector, now: float) -> None:
        """Hold the largest demands of an executor, whose limits follow its profile from ``now`` on."""
        self.executor, self.profile, self.assigned_at = True, profile, now
        self.outside_profile = outside_profile
        self.cores = max(profile.cpu_cores, default=outside_profile.cpu_cores)
        self.memory_bytes = max(profile.memory_bytes, default=int(outside_profile.memory_bytes))


@dataclass(slots=True)
class Requests:
    """The ``decide`` requests on one connection of a node: gathered, then numbered and sent, then answered once."""

    number: int = 0  # of the latest request that was sent
    unanswered: dict[int, list[AnyDecision]] = field(default_factory=dict)
    gathered: list[list[AnyDecision]] = field(default_factory=list)  # the requests after `number`
    _weight_bytes: int = 0  # of the last one of them

    def add(self, decision: AnyDecision) -> int:
        """Add a decision to the next request; return the request's number."""
        weight = _weight_bytes(decision)
        if not self.gathered or self._weight_bytes + weight > _REQUEST_BYTES:
            self.gathered.append([])
            self._weight_bytes = 0
        self.gathered[-1].append(decision)
        self._weight_bytes += weight
        return self.number + len(self.gathered)

    def send(self) -> list[tuple[int, list[AnyDecision]]]:
        """Return the gathered requests with their numbers; they are now to be answered.

        Executors come after tasks: an agent checks each against what it has promised before, and an executor may share
        memory over time with another one, which the sum that a task is checked against does not know.
        """
        in_order = [sorted(decisions, key=_is_executor) for decisions in self.gathered]
        numbered = list(enumerate(in_order, self.number + 1))
        self.unanswered.update(numbered)
        self.number += len(numbered)
        self.gathered = []
        return numbered

    def answered(self, number: int) -> list[AnyDecision]:
        """Return the decisions of an answered request; none where it was sent on another connection."""
        return self.unanswered.pop(number, [])


def _is_executor(decision: AnyDecision) -> bool:
    return isinstance(decision, Assign) and decision.profile is not None


def _weight_bytes(decision: AnyDecision) -> int:
    """Return the approximate bytes of a decision on the wire, so that no request exceeds the frame limit."""
    weight = 512 + len(decision.why)
    if isinstance(decision, Assign) and decision.request.command is not None:
        command = decision.request.command
        weight += sum(len(text) + 8 for text in (*command.argv, *command.env, *command.env.values()))
        weight += 16 * len(decision.request.nodes)
        weight += 4 * 9 * decision.profile.slots if decision.profile is not None else 0
    return weight


@dataclass(slots=True)
class Node:
    """A node. A node that never registered is only expected: an origin, or the holder of a task some origin awaits."""

    name: str
    away_since: float | None  # None: connected
    state: life_cycles.NodeState = "expected"
    capacity: Capacity = field(default_factory=lambda: Capacity(cores=0.0, memory_bytes=0))
    version: str = ""
    t_alloc: float = 0.0
    load: Load = field(default_factory=lambda: Load(rates=KindAmounts(), pending=KindAmounts(), idle=KindAmounts()))
    last_message_at: float = 0.0
    heartbeats: int = 0
    decided: int = 0  # of the latest request included in `load`
    requests: Requests = field(default_factory=Requests)  # of the present connection
    held: dict[Key, Held] = field(default_factory=dict)
    #: Jobs it serves: reported at registration, or added since.
    serves: set[str] = field(default_factory=set)
    job_came_at: float = -math.inf  # the latest time at which a job came that it serves, monotonic
    external_memory_bytes: int = 0  # promised to regular containers outside any job
    availability: Availability | None = None  # the latest on this connection
    availability_at: float = 0.0  # when it was reported, monotonic
    ranks: NodeRanks | None = None  # the order of the jobs there, the latest on this connection
    executors_due: bool = False  # it has reported since it was last examined for executors
    draining: Draining | None = None  # set: no work is placed there
    draining_in: int = 0  # the request of its present connection that announced the drain
    kept_cores: float = 0.0  # free, and kept for tasks that wait (master/core/kept_room.py)
    kept_memory_bytes: int = 0
    kept_tasks: int = 0  # that it is kept for
    left_at: float = -math.inf  # its latest message when a regular task last left it, monotonic
    slack_limit: SlackLimit | None = None  # since opportunistic work was preempted there
    own: list[Remaining] | None = None  # while draining: other work there, once reported

    @property
    def slots(self) -> tuple[float, float, float]:
        """Return the number of slots of each kind."""
        capacity = self.capacity
        return float(capacity.cpu_slots), float(capacity.disk_slots), float(capacity.network_slots)

    @property
    def connected(self) -> bool:
        """Return whether messages can be sent to the node."""
        return self.away_since is None

    @property
    def takes_work(self) -> bool:
        """Return whether tasks may be placed on the node."""
        return self.away_since is None and self.draining is None

    def registered(self, message: Register, now: float) -> dict[Key, Held]:
        """Begin a new connection, and store the reported holdings; return the holdings known before."""
        self.state = next_state(life_cycles.NODE, self.state, "registers")
        self.away_since = None
        self.last_message_at = now
        self.heartbeats += 1
        self.capacity, self.version, self.t_alloc = message.capacity, message.version, message.t_alloc
        self.requests = Requests()
        self.availability = self.ranks = None
        self.serves = {use.job for use in message.load.jobs}
        before, self.held = self.held, {}
        for placed in message.placed:
            held = Held(
                job=placed.job,
                task=placed.task,
                usage=placed.remaining,
                memory_bytes=placed.memory_bytes,
                opportunistic=placed.opportunistic,
                command=placed.command,
                user=placed.user,
            )
            held.step("found")
            if (known := before.get(held.key)) is not None:
                held.known_before(known)
            self.held[held.key] = held
        self.take_load(message.load, 0)
        return before

    def connection_lost(self, now: float) -> None:
        """Record that the connection was lost."""
        self.state = next_state(life_cycles.NODE, self.state, "connection lost")
        self.away_since = now

    def excuse_silence(self, stalled_s: float, now: float) -> None:
        """Take a time in which the master received nothing out of the node's silence or absence."""
        self.last_message_at = min(now, self.last_message_at + stalled_s)
        if self.away_since is not None:
            self.away_since = min(now, self.away_since + stalled_s)

    def expired(self) -> None:
        """Record that the node was away or silent for too long."""
        self.state = next_state(life_cycles.NODE, self.state, "expires")

    def take_load(self, load: Load, decided: int) -> None:
        """Store a report. Memory it promises beyond the known tasks counts as promised to other work."""
        self.load = load
        self.decided = decided
        if load.t_alloc is not None and math.isfinite(load.t_alloc) and load.t_alloc >= 0:
            self.t_alloc = load.t_alloc
        if load.availability is not None:
            self.availability, self.availability_at = load.availability, self.last_message_at
        if load.ranks is not None:
            self.ranks = load.ranks
        self.executors_due = True
        ours = sum(held.memory_bytes for held in self.held.values() if held.seen_promised(decided))
        self.external_memory_bytes = max(0, load.promised_memory_bytes - ours)

    def memory_free_bytes(self) -> int:
        """Return the unpromised memory. Negative when the node promises more than it has."""
        ours = sum(held.memory_bytes for held in self.held.values() if held.regular)
        return self.capacity.memory_bytes - self.external_memory_bytes - ours

    def cores_free(self) -> float:
        """Return the cores that may still be promised to commands.

        The node counts a placed command from its start, so neither sum below includes all commands; the larger one is
        exact when only placed commands run there.
        """
        regular = [held for held in self.held.values() if held.regular and held.cores]
        coming = sum(held.cores for held in regular if held.coming(self.decided))
        ours = sum(held.cores for held in regular)
        return self.capacity.cores - max(self.load.promised_cores + coming, ours)
