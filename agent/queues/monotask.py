"""A monotask on this node, and its place among the monotasks of its job."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Literal

import msgspec

from penstock.model import ResourceKind
from penstock.model.work import MonotaskId


class State(enum.IntEnum):
    """The state of a monotask. ENDED covers done, failed and cancelled."""

    QUEUED = 0
    GRANTED = 1
    BYPASSING = 2  # granted without a slot: small network monotasks (Ursa §4.2.3), opportunistic commands
    ENDED = 3
    OVERDUE = 4  # runs on after its slot was taken back (see agent.queues.overdue)


# Python 3.11 looks an enum's members up in a Python function, too slow for comparisons made on every grant.
QUEUED, GRANTED, BYPASSING, ENDED = State.QUEUED, State.GRANTED, State.BYPASSING, State.ENDED
OVERDUE = State.OVERDUE
Event = Literal["grant", "bypass", "take back", "end"]
#: The life of a monotask, which begins as QUEUED: event → state → next state. An event without a row is an error of the
#: program (KeyError). The modules of this package look a row up where they change the state: a grant has no time for
#: a call.
LIFE: Mapping[Event, Mapping[State, State]] = {
    "grant": {QUEUED: GRANTED, BYPASSING: GRANTED},  # BYPASSING: a promoted command (UBIS §IV.D)
    "bypass": {QUEUED: BYPASSING},
    "take back": {GRANTED: OVERDUE},
    "end": {QUEUED: ENDED, GRANTED: ENDED, BYPASSING: ENDED, OVERDUE: ENDED},
}
GRANT, BYPASS, TAKE_BACK, END = LIFE.values()
_CPU = ResourceKind.CPU
#: How many small disk monotasks run together in one slot: the disk's own queue sorts them (Ursa §4.2.3).
TOGETHER = 16
#: The "session" of monotasks that are commands: their grant starts a container.
COMMANDS = 0


class Monotask(msgspec.Struct, eq=False):  # one per submission, a quarter of the cost of a class
    """One monotask. ``session`` is the connection that submitted it and receives its grant.

    ``small`` monotasks share a slot (Ursa §4.2.3: many small disk monotasks run together). ``lease_until``, unless 0,
    is the monotonic time until which the slot may pass to other monotasks of the same job and kind without asking the
    agent; with ``keep`` the slot may be idle meanwhile.
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
    """Return the sort key of a monotask within its stage (Ursa §4.2.3).

    CPU: larger inputs first, so that the longest start early and the stage ends early. Disk and network: smaller first,
    so that the CPU monotasks that wait for them are ready early.
    """
    return -input_bytes if kind is _CPU else input_bytes
