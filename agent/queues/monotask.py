"""A monotask while this node has it, and the place it takes among the others of its job."""

from __future__ import annotations

import enum

import msgspec

from penstock.model import ResourceKind
from penstock.model.work import MonotaskId


class State(enum.IntEnum):
    """Where a monotask is. ENDED covers done, failed and cancelled: it holds nothing any more."""

    QUEUED = 0
    GRANTED = 1
    BYPASSING = 2  # granted without a slot (Ursa §4.2.3: latency-sensitive small network monotasks), or beside them
    ENDED = 3
    OVERDUE = 4  # it was granted a slot, and runs on without (see agent.queues.overdue)


# An enum's members are found by a Python function (3.11); what every grant compares with is looked up once.
QUEUED, GRANTED, BYPASSING, ENDED = State.QUEUED, State.GRANTED, State.BYPASSING, State.ENDED
OVERDUE = State.OVERDUE
_CPU = ResourceKind.CPU
#: So many small disk monotasks run together as one: the disk's own queue sorts them (Ursa §4.2.3).
TOGETHER = 16
#: The "session" of monotasks that are commands: their grant starts a container.
COMMANDS = 0


class Monotask(msgspec.Struct, eq=False):  # made for every submission: a quarter of a class's cost
    """One monotask. ``session`` is the connection that submitted it and receives its grant.

    ``small`` ones share a slot (Ursa §4.2.3: many small disk monotasks run together). ``lease_until``, where it is not
    0, is the monotonic time until which its slot may go on to others of its job and kind without asking; with ``keep``
    it may be idle meanwhile.
    """

    session: int
    job: str
    id: MonotaskId
    kind: ResourceKind
    input_bytes: int
    task: str
    small: bool = False
    state: State = QUEUED
    granted_at: float = 0.0
    lease_until: float = 0.0
    keep: bool = False

    def __repr__(self) -> str:
        return f"<Monotask {self.job}/{self.id} {self.kind} {self.input_bytes} B {self.state.name}>"


def size_rank(kind: ResourceKind, input_bytes: int) -> int:
    """The order within a stage (Ursa §4.2.3).

    CPU: larger inputs first, so that the longest start early and the stage ends early. Disk and network: smaller first,
    so that the CPU monotasks that wait for them are ready early.
    """
    return -input_bytes if kind is _CPU else input_bytes
