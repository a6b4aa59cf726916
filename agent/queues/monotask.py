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


class Monotask:
    """One monotask. ``session`` is the connection that submitted it and receives its grant."""

    __slots__ = ("granted_at", "id", "input_bytes", "job", "kind", "session", "state", "task")

    def __init__(
        self, session: int, job: str, name: MonotaskId, kind: ResourceKind, input_bytes: int, task: str
    ) -> None:
        self.session = session
        self.job = job
        self.id = name
        self.kind = kind
        self.input_bytes = input_bytes
        self.task = task
        self.state = State.QUEUED
        self.granted_at = 0.0

    def __repr__(self) -> str:
        return f"<Monotask {self.job}/{self.id} {self.kind} {self.input_bytes} B {self.state.name}>"


def size_rank(kind: ResourceKind, input_bytes: int) -> int:
    """The order within a stage (Ursa §4.2.3).

    CPU: larger inputs first, so that the longest start early and the stage ends early. Disk and network: smaller first,
    so that the CPU monotasks that wait for them are ready early.
    """
    return -input_bytes if kind is ResourceKind.CPU else input_bytes
