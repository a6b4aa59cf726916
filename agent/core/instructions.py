"""What the shell is told to do."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agent.core.confinement import Confinement
from penstock.model import ContainerSpec
from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Params


class Grant(msgspec.Struct, frozen=True):  # made for every grant: a quarter of a dataclass's cost
    """Tell a session that monotasks of a job may run: the notification ``grant``."""

    session: int
    job: str
    ids: list[MonotaskId]
    lease_s: float = 0.0
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Notify:
    """Send another notification to a session."""

    session: int
    method: str
    params: Params


class Reply(msgspec.Struct, frozen=True):
    """The result of the request that was this event."""

    result: object


@dataclass(frozen=True, slots=True)
class TellMaster:
    """Relay to the master, in order; kept by the core's state for a master that is away."""

    method: str
    params: Params


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Create the cgroup, set its limits, start the command in it; answer ContainerStarted or ContainerNotStarted."""

    container: str
    user: str
    spec: ContainerSpec
    rank_weight: int = 0


@dataclass(frozen=True, slots=True)
class AdoptProcess:
    """Create the cgroup, set its limits, move a process into it; answered as StartContainer is. ``borrow``: such that
    it can be given back."""

    container: str
    user: str
    spec: ContainerSpec
    pid: int
    tree: bool
    rank_weight: int = 0
    borrow: bool = False


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Move the processes of a container that was borrowed back to where they were; answer GivenBack."""

    container: str
    pid: int  # of its first process
    nice: int  # that it had
    apart: frozenset[int] = frozenset()  # as in Renice


@dataclass(frozen=True, slots=True)
class KillContainer:
    """Kill everything in the container (``cgroup.kill``)."""

    container: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchOrphan:
    """The container's launcher died: answer ContainerExited once its cgroup holds no process."""

    container: str


@dataclass(frozen=True, slots=True)
class Confine:
    """Tell the kernel what holds for a container now, in place: resized, following its profile, or promoted.

    Answer Confined. Memory shrinks in steps, and only as far as nothing is killed by it.
    """

    container: str
    confinement: Confinement


@dataclass(frozen=True, slots=True)
class Renice:
    """Where no cpu controller weighs a container: the nice value of its processes, by the rank of its job.

    Those of an opportunistic one run when nothing else wants the processor (SCHED_IDLE).
    """

    container: str
    pid: int  # of its first process, which leads its session unless it was adopted
    nice: int
    adopted: bool = False  # then the container's processes are its first and that one's descendants
    apart: frozenset[int] = frozenset()  # first processes of other adopted containers, with descendants of their own
    opportunistic: bool | None = None  # it is so from now on, or no longer (promoted); None: nothing changes


@dataclass(frozen=True, slots=True)
class Freeze:
    """Stop every process of a container where it is (``frozen``), or let all go on."""

    container: str
    frozen: bool


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Take up to ``size_bytes`` of page cache from a container; answer Reclaimed."""

    container: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to a container's first process and its group: notice that it will be preempted."""

    container: str
    signal: int


@dataclass(frozen=True, slots=True)
class WatchMemory:
    """Look at memory between two samples, or no longer: while there is opportunistic work that could give some back."""

    on: bool


@dataclass(frozen=True, slots=True)
class Wake:
    """Send Woken at this time (as ``now``: monotonic seconds); the latest Wake replaces those before it."""

    at: float


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    """It ended and that was recorded: remove its cgroup, acknowledge it to the launcher."""

    container: str


@dataclass(frozen=True, slots=True)
class Record:
    """Journal a record under (``room``, ``key``); ``value`` None removes it."""

    room: str
    key: str
    value: object | None


@dataclass(frozen=True, slots=True)
class Explain:
    """Log an action: who, why, which numbers (docs/architecture.md, rule 7)."""

    what: str
    facts: dict[str, object]


Instruction = (
    Grant
    | Notify
    | Reply
    | TellMaster
    | StartContainer
    | AdoptProcess
    | GiveBack
    | KillContainer
    | WatchOrphan
    | Confine
    | Renice
    | Freeze
    | Reclaim
    | Signal
    | WatchMemory
    | Wake
    | RemoveContainer
    | Record
    | Explain
)
