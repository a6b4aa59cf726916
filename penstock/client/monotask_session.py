"""PURE. The session of one job's monotasks at the agent: the state of each monotask, and the messages to send for it.

An agent loses all monotasks with the connection. After a reconnection every live monotask is therefore announced again,
a granted one as ``running``. A monotask that ended during the outage needs no message.

A grant may include a lease: until its end the slot may be passed on to the next queued monotask of its kind without
asking. The monotasks that ended meanwhile are reported in one message when the lease is over.

A session with a finite patience fails open: while the agent is away, a monotask waits at most ``patience_s`` seconds,
counted from the start of the outage, and is then withdrawn to run without a grant.

The clock is an argument: ``now`` is monotonic time in seconds. The faces are :class:`penstock.client.Job` for asyncio
and :class:`penstock.client.gate.Gate` for threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Generic, Literal, NamedTuple, TypeVar

from penstock.model.resources import KINDS, ResourceKind
from penstock.model.stages import StageRanks
from penstock.model.work import MonotaskId, MonotaskSpec
from penstock.wire.agent_api import Completion, Leased

#: A link that lasted less than this (seconds) did not end the previous outage: an agent that keeps crashing is away.
SETTLED_S = 1.0

#: ``unsent``: waits in this process; ``queued``: waits at the agent; ``unannounced``: granted before the connection was
#: lost, and not announced over the next one.
State = Literal["new", "unsent", "queued", "granted", "unannounced", "ended"]
Event = Literal["submit", "send", "grant", "lose", "end"]

#: The life of a monotask: event → state → next state. A grant without a row is late and is ignored: the monotask was
#: started in a leased slot, or ended, while the grant was on its way. So are the sending of one that ended before it
#: was sent, and the withdrawal of one that has ended. "submit" or "lose" without a row is an error of the program.
TRANSITIONS: dict[Event, dict[State, State]] = {
    "submit": {"new": "unsent", "ended": "unsent"},  # an ended one: a slot that is acquired again
    "send": {"unsent": "queued", "unannounced": "granted"},
    "grant": {"queued": "granted"},
    "lose": {"queued": "unsent", "unsent": "unsent", "granted": "unannounced", "unannounced": "unannounced"},
    "end": {"unsent": "ended", "queued": "ended", "granted": "ended", "unannounced": "ended"},
}
_SUBMIT, _SEND, _GRANT, _LOSE, _END = TRANSITIONS.values()
_WAITING: frozenset[State] = frozenset({"unsent", "queued"})
_GRANTED: frozenset[State] = frozenset({"granted", "unannounced"})
#: The agent knows monotasks in these states, and is told of their end.
_KNOWN: frozenset[State] = frozenset({"queued", "granted"})


class SessionMonotask:
    """A monotask of a session. Each face has a subclass, whose :meth:`decided` ends the wait for the grant.

    The session sets ``id`` when it is submitted, and ``began`` to the time of the grant. While ``lease_until`` is in
    the future, its slot may be passed on; with ``keep`` the slot may also be idle until then.
    """

    __slots__ = ("began", "id", "input_bytes", "keep", "kind", "lease_until", "stage", "state", "task")
    id: int
    began: float
    lease_until: float
    keep: bool

    def __init__(self, kind: ResourceKind, input_bytes: int, stage: str = "", task: str = "") -> None:
        self.kind = kind
        self.input_bytes = input_bytes
        self.stage = stage
        self.task = task
        self.state: State = "new"

    @property
    def is_granted(self) -> bool:
        """Whether it was granted and has not ended."""
        return self.state in _GRANTED

    def decided(self, error: Exception | None = None, *, gated: bool = True) -> bool:
        """End the wait, by a grant, by an error, or (not ``gated``: patience is over) without a grant.

        Return whether anything still waited for it.
        """
        raise NotImplementedError


T = TypeVar("T", bound=SessionMonotask)


class Outgoing(NamedTuple):
    """The messages to send for one job now: one per list, in this order."""

    submit: list[MonotaskSpec]
    complete: list[Completion]
    cancel: list[MonotaskId]


class MonotaskSession(Generic[T]):
    """The monotasks of one job in this process that have not ended, in the order of submission.

    It begins without a connection. ``patience_s`` counts from ``now`` until the first :meth:`back`.
    """

    def __init__(self, patience_s: float = math.inf, now: float = 0.0) -> None:
        #: Monotasks of each kind that wait for a grant. Other threads may read the numbers.
        self.waiting = dict.fromkeys(KINDS, 0)
        #: Whether the agent is connected and answers.
        self.answers = False
        #: Outages in which patience ran out.
        self.outages = 0
        self._live: dict[MonotaskId, T] = {}
        self._unsent: list[T] = []  # may contain monotasks that ended meanwhile
        self._leased: dict[MonotaskId, T] = {}
        self._order: dict[ResourceKind, list[tuple[int, int, int]]] = {kind: [] for kind in KINDS}  # heaps, lazily
        self._stages = StageRanks()
        self._completed: list[Completion] = []
        self._cancelled: list[MonotaskId] = []
        self._last_id = 0
        self._linked = False
        self._patience_s = patience_s
        self._answers_since = self._outage_began = now
        self._ran_out = False  # patience, in this outage

    def __len__(self) -> int:
        return len(self._live)

    @property
    def granted(self) -> int:
        """The number of granted monotasks."""
        return len(self._live) - sum(self.waiting.values())

    # ------------------------------------------------------------ requests

    def submit(self, one: T) -> None:
        """Add a monotask, new or ended."""
        one.state = _SUBMIT[one.state]
        self._last_id += 1
        one.id = self._last_id
        one.lease_until = 0.0
        one.keep = False
        self._live[one.id] = one
        self._unsent.append(one)
        self.waiting[one.kind] += 1

    def complete(
        self,
        one: T,
        now: float = 0.0,
        failed: bool = False,
        execution_s: float | None = None,
        leased: Leased | None = None,
    ) -> T | None:
        """End a granted monotask; while its lease lasts, start the next one of its kind in the slot and return that.

        ``leased`` describes the monotasks that ran in the slot meanwhile; ``execution_s`` is then the time of the
        first.

        Raises:
            ValueError: it waits for its grant, or has ended.
        """
        if one.state not in _GRANTED:
            raise ValueError(f"monotask {one.id} cannot be completed: it waits for its grant")
        until = one.lease_until
        then = self._next_queued(one.kind) if now < until else None
        next_id = None
        if then is not None:
            next_id = then.id
            if execution_s is None:
                execution_s = now - one.began
            self._start(then, now, until, keep=False)
        if self._end(one):
            self._completed.append(
                Completion(id=one.id, failed=failed, then=next_id, execution_s=execution_s, leased=leased)
            )
        return then

    def cancel(self, one: T) -> bool:
        """Withdraw a monotask; return False if it had ended already."""
        if one.state not in _END:
            return False
        if self._end(one):
            self._cancelled.append(one.id)
        return True

    # ------------------------------------------------------------ the agent's messages

    def grant(self, ids: Iterable[MonotaskId], now: float = 0.0, lease_s: float = 0.0, keep: bool = False) -> list[T]:
        """Record grants; return the monotasks that may start. Ignore grants that crossed a cancellation or repeat."""
        fresh: list[T] = []
        until = now + lease_s if lease_s else 0.0
        for one in map(self._live.get, ids):
            if one is not None and one.state in _GRANT:
                self._start(one, now, until, keep=keep)
                fresh.append(one)
        return fresh

    def refuse(self, ids: Iterable[MonotaskId]) -> list[T]:
        """End the monotasks of a submission that the agent refused; return those that had not ended before."""
        refused = [one for one in map(self._live.get, ids) if one is not None]
        for one in refused:
            self._end(one)
        return refused

    def recall(self, kind: ResourceKind, idle: bool = False) -> None:
        """End the leases of a kind, or (``idle``) only the right to keep their slots idle."""
        for one in [one for one in self._leased.values() if one.kind is kind]:
            one.keep = False
            if not idle:
                one.lease_until = 0.0
                del self._leased[one.id]

    # ------------------------------------------------------------ the connection

    def link(self) -> None:
        """The agent knows the job (again): announce all live monotasks, in the order of submission."""
        self._linked = True

    def unlink(self) -> None:
        """The connection was lost, and with it all that the agent knew of this job's monotasks."""
        self._linked = False
        self._completed, self._cancelled = [], []
        for one in self._live.values():
            one.state = _LOSE[one.state]
        self._unsent = list(self._live.values())
        for one in self._leased.values():
            one.lease_until, one.keep = 0.0, False
        self._leased.clear()
        for order in self._order.values():
            order.clear()

    def job_over(self) -> None:
        """The job is over at the agent: waiting monotasks wait for another job, granted ones run on unrecorded."""
        self.unlink()
        for one in [one for one in self._live.values() if one.state in _GRANTED]:
            self._end(one)

    def clear(self) -> list[T]:
        """End all monotasks without sending anything, as the job is over; return those that waited."""
        self.unlink()
        waited = [one for one in self._live.values() if one.state in _WAITING]
        for one in list(self._live.values()):
            self._end(one)
        return waited

    def take(self) -> Outgoing:
        """Take the messages to send now; empty while the agent does not know the job."""
        submit: list[MonotaskSpec] = []
        if not self._linked:
            return Outgoing(submit, [], [])
        for one in self._unsent:
            if (state := _SEND.get(one.state)) is None:
                continue
            one.state, running = state, state == "granted"
            if not running:  # the agent's order (Ursa §4.2.3): stages by appearance; larger first on CPUs
                size = -one.input_bytes if one.kind is ResourceKind.CPU else one.input_bytes
                order = self._order[one.kind]
                if len(order) > 64 + 2 * self.waiting[one.kind]:  # most entries are of monotasks granted long ago
                    order[:] = [entry for entry in order if self._queued(entry[2]) is not None]
                    heapify(order)
                heappush(order, (self._stages.rank(one.stage), size, one.id))
            submit.append(
                MonotaskSpec(
                    id=one.id,
                    kind=one.kind,
                    input_bytes=one.input_bytes,
                    stage=one.stage,
                    task=one.task,
                    running=running,
                )
            )
        out = Outgoing(submit, self._completed, self._cancelled)
        self._unsent, self._completed, self._cancelled = [], [], []
        return out

    # ------------------------------------------------------------ patience with an agent that is away

    @property
    def open(self) -> bool:
        """Whether patience is over and work runs without grants: until :meth:`back`, no request need be submitted."""
        return self._ran_out and not self.answers

    @property
    def deadline(self) -> float | None:
        """When :meth:`give_up` must be called; None: not before another event."""
        if self.answers or not any(self.waiting.values()):
            return None
        return self._outage_began + self._patience_s

    def back(self, now: float) -> None:
        """The agent is connected and answers."""
        if not self.answers:
            self.answers = True
            self._answers_since = now

    def lost(self, now: float) -> None:
        """The agent is away, or silent since ``now``. A new outage starts unless the agent had only just come back."""
        if self.answers:
            self.answers = False
            if now - self._answers_since >= SETTLED_S:
                self._outage_began = now
                self._ran_out = False

    def give_up(self, now: float) -> list[T]:
        """Withdraw all waiting monotasks, to run without grants, if patience is over."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return []
        if not self._ran_out:
            self._ran_out = True
            self.outages += 1
        waiting = [one for one in self._live.values() if one.state in _WAITING]
        for one in waiting:
            self.cancel(one)
        return waiting

    # ------------------------------------------------------------ leases

    def next_expiry(self, now: float) -> float | None:
        """Return when the next lease ends whose slot may be idle; None without any."""
        return min(
            (one.lease_until for one in self._leased.values() if one.keep and one.lease_until > now), default=None
        )

    def _start(self, one: T, now: float, until: float, *, keep: bool) -> None:
        one.state = _GRANT[one.state]
        one.began = now
        self.waiting[one.kind] -= 1
        if until:
            one.lease_until, one.keep = until, keep
            self._leased[one.id] = one

    def _next_queued(self, kind: ResourceKind) -> T | None:
        """Take the monotask that the agent would grant next."""
        order = self._order[kind]
        while order:
            if (one := self._queued(heappop(order)[2])) is not None:
                return one
        return None

    def _queued(self, monotask: int) -> T | None:
        one = self._live.get(monotask)
        return one if one is not None and one.state == "queued" else None

    def _end(self, one: T) -> bool:
        """End a live monotask; return whether the agent knows it, and must be told."""
        state = one.state
        if state in _WAITING:
            self.waiting[one.kind] -= 1
        one.state = _END[state]
        del self._live[one.id]
        if self._leased.pop(one.id, None) is not None:
            one.lease_until, one.keep = 0.0, False
        return state in _KNOWN
