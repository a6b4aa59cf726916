"""A monotask while this node has it, and the place it takes among the others of its job."""

from __future__ import annotations

import enum

from penstock.model import ResourceKind
from penstock.model.work import MonotaskId


class State(enum.IntEnum):
    """Where a monotask is. ENDED covers done, failed and cancelled: it holds nothing any more."""

    QUEUED = 0
    GRANTED = 1
    BYPASSING = 2  # granted without a slot (Ursa §4.2.3: latency-sensitive small network monotasks)
    ENDED = 3


# An enum's members are found by a Python function (3.11); what every grant compares with is looked up once.
QUEUED, GRANTED, BYPASSING, ENDED = State.QUEUED, State.GRANTED, State.BYPASSING, State.ENDED
_CPU = ResourceKind.CPU


class Monotask:
    """One monotask. ``session`` is the connection that submitted it and receives its grant.

    ``small`` ones share a slot (Ursa §4.2.3: many small disk monotasks run together). ``lease_until``, where it is not
    0, is the monotonic time until which its slot may go on to others of its job and kind without asking.
    """

    __slots__ = (
        "granted_at", "id", "input_bytes", "job", "kind", "lease_until", "session", "small", "state", "task",
    )  # fmt: skip

    def __init__(
        self, session: int, job: str, name: MonotaskId, kind: ResourceKind, input_bytes: int, task: str, *, small: bool
    ) -> None:
        self.session = session
        self.job = job
        self.id = name
        self.kind = kind
        self.input_bytes = input_bytes
        self.task = task
        self.small = small
        self.state = QUEUED
        self.granted_at = 0.0
        self.lease_until = 0.0

    def __repr__(self) -> str:
        return f"<Monotask {self.job}/{self.id} {self.kind} {self.input_bytes} B {self.state.name}>"


def size_rank(kind: ResourceKind, input_bytes: int) -> int:
    """The order within a stage (Ursa §4.2.3).

    CPU: larger inputs first, so that the longest start early and the stage ends early. Disk and network: smaller first,
    so that the CPU monotasks that wait for them are ready early.
    """
    return -input_bytes if kind is _CPU else input_bytes
