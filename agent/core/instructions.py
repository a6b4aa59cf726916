"""Instructions to the shell."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agent.core.confinement import Confinement
from penstock.model import ContainerSpec
from penstock.wire.agent_api import Grants, Notice, Progress
from penstock.wire.master_api import CommandEnded, JobEnded, JobState, ReadyTasks, TasksCancelled, TasksDone

#: The messages to the master; the type names the method (:data:`penstock.wire.master_api.REQUESTS`).
ToMaster = JobState | JobEnded | ReadyTasks | TasksDone | TasksCancelled | Progress | CommandEnded


class Grant(msgspec.Struct, frozen=True):  # one per grant, a quarter of a dataclass's cost
    """Tell a session that monotasks of a job may run: the notification ``grant``."""

    session: int
    grants: Grants


@dataclass(frozen=True, slots=True)
class Notify:
    """Send another notification to a session."""

    session: int
    params: Notice


class Reply(msgspec.Struct, frozen=True):
    """The result of the request that this event was."""

    result: object


@dataclass(frozen=True, slots=True)
class SendToMaster:
    """Relay a message to the master, in order. The core's state keeps it while the master is absent. One that
    ``may_wait`` need not leave alone, and the next one of its kind and job may replace it.
    """

    params: ToMaster
    may_wait: bool = False


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Create the cgroup, in these ``groups`` (:mod:`agent.core.groups`), the outermost first; set its limits, start the
    command in it; answer ContainerStarted or ContainerNotStarted.
    """

    container: str
    user: str
    spec: ContainerSpec
    rank_weight: int = 0
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdoptProcess:
    """Create the cgroup, set its limits, move a process into it; answered as StartContainer is. ``borrow``: so that the
    process can be given back.
    """

    container: str
    user: str
    spec: ContainerSpec
    pid: int
    tree: bool
    rank_weight: int = 0
    groups: tuple[str, ...] = ()
    borrow: bool = False


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Move the processes of a borrowed container back to their former cgroups; answer GivenBack."""

    container: str
    pid: int  # of its first process
    nice: int  # its former nice value
    apart: frozenset[int] = frozenset()  # as in Renice


@dataclass(frozen=True, slots=True)
class KillContainer:
    """Kill everything in the container (``cgroup.kill``)."""

    container: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchOrphan:
    """The container's launcher died: answer ContainerExited once its cgroup is empty."""

    container: str


@dataclass(frozen=True, slots=True)
class Confine:
    """Apply a container's settings in place: it was resized, follows its profile, or was promoted.

    Answer Confined. Memory shrinks in steps, and only as far as no process is killed.
    """

    container: str
    confinement: Confinement


@dataclass(frozen=True, slots=True)
class Renice:
    """Without a cpu controller: set the nice value of a container's processes by the rank of its job.

    The processes of an opportunistic container run only on idle processors (SCHED_IDLE).
    """

    container: str
    pid: int  # of its first process, which leads its session unless it was adopted
    nice: int
    adopted: bool = False  # then its processes are the first and its descendants
    apart: frozenset[int] = frozenset()  # first processes of other adopted containers, excluded with their descendants
    opportunistic: bool | None = None  # changed to this; None: unchanged


@dataclass(frozen=True, slots=True)
class Freeze:
    """Stop every process of a container (``frozen``), or let all continue."""

    container: str
    frozen: bool


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Reclaim up to ``size_bytes`` of page cache from a container; answer Reclaimed."""

    container: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Signal a container's first process and its process group: notice of its preemption."""

    container: str
    signal: int


@dataclass(frozen=True, slots=True)
class WatchMemory:
    """Start or stop checking memory between samples: on while opportunistic work could give some back."""

    on: bool


@dataclass(frozen=True, slots=True)
class Wake:
    """Send Woken at this time (monotonic seconds, as ``now``); the latest Wake replaces earlier ones."""

    at: float


@dataclass(frozen=True, slots=True)
class ReadCpuTimes:
    """Read the CPU time of the containers; answer CpuTimesRead. ``again``: the job came a while ago, so that no message
    about it is to follow, with which the times could be reported.
    """

    again: bool = False


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    """A container's end was recorded: remove its cgroup, and acknowledge the end to the launcher."""

    container: str


@dataclass(frozen=True, slots=True)
class Record:
    """Journal a record under (``room``, ``key``); ``value`` None removes it."""

    room: str
    key: str
    value: object | None


@dataclass(frozen=True, slots=True)
class Explain:
    """Log an action with its subject, reason and numbers (docs/architecture.md, rule 7)."""

    what: str
    facts: dict[str, object]


Instruction = (
    Grant
    | Notify
    | Reply
    | SendToMaster
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
    | ReadCpuTimes
    | RemoveContainer
    | Record
    | Explain
)
