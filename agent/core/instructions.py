"""What the shell is told to do."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model import ContainerSpec, Limits
from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Params


@dataclass(frozen=True, slots=True)
class Grant:
    """Tell a session that monotasks of a job may run: the notification ``grant``."""

    session: int
    job: str
    ids: list[MonotaskId]


@dataclass(frozen=True, slots=True)
class Notify:
    """Send another notification to a session."""

    session: int
    method: str
    params: Params


@dataclass(frozen=True, slots=True)
class Reply:
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


@dataclass(frozen=True, slots=True)
class KillContainer:
    """Kill everything in the container (``cgroup.kill``)."""

    container: str
    reason: str


@dataclass(frozen=True, slots=True)
class SetClass:
    """Apply a container's limits in a class, in place: promotion (UBIS §IV.D)."""

    container: str
    limits: Limits
    opportunistic: bool


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
    Grant | Notify | Reply | TellMaster | StartContainer | KillContainer | SetClass | RemoveContainer | Record | Explain
)
