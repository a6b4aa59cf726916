"""A command in a cgroup of its own: what it asks for, and how it ended."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(gt=0)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limits of one container; ``None`` leaves the kernel's default (no limit).

    ``memory_max_bytes`` kills on excess (the kernel's OOM killer, inside the container only); ``memory_high_bytes``
    reclaims and throttles instead. Disk limits hold for each disk of the host. The network limit holds for what the
    container sends.
    """

    cpu_cores: Annotated[float, msgspec.Meta(gt=0)] | None = None
    cpu_weight: Annotated[int, msgspec.Meta(ge=1, le=10000)] | None = None
    memory_high_bytes: Positive | None = None
    memory_max_bytes: Positive | None = None
    disk_read_bytes_per_s: Positive | None = None
    disk_write_bytes_per_s: Positive | None = None
    network_egress_bytes_per_s: Positive | None = None
    pids_max: Positive | None = None


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A command to run. The user is never part of it: work runs as the peer of the socket it came from.

    ``cpu_cores`` and ``memory_bytes`` are the *promise* (what the node sets aside for a regular container, what an
    opportunistic one asks of the slack); ``limits`` is what it may at most use. ``env`` is the whole environment but
    for PATH, HOME, USER, LOGNAME and SHELL, which default to the user's. ``stdio`` is a token under which descriptors
    were passed (docs/protocol.md); without it output goes to files kept by the agent. An *attached* container
    (``detach`` false) is killed when the connection that launched it closes while the agent runs.
    """

    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    name: Annotated[str, msgspec.Meta(max_length=128)] = ""
    env: dict[str, str] = {}
    cwd: str = "/"
    limits: Limits = Limits()
    cpu_cores: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    opportunistic: bool = False
    detach: bool = False
    stdio: str = ""


class EndedBy(enum.StrEnum):
    """Why a container ended."""

    EXIT = "exit"  # by itself, with an exit status
    SIGNAL = "signal"  # by a signal that Penstock did not send
    OOM = "oom"  # the kernel enforced memory.max
    PREEMPTED = "preempted"  # opportunistic, and its resources were wanted (UBIS §IV.C)
    CANCELLED = "cancelled"  # somebody asked for it
    DISCONNECTED = "disconnected"  # attached, and its client went away
    REFUSED = "refused"  # never started: the node could not keep the promise
    FAILED = "failed"  # never started: the command or its surroundings could not be set up
    LOST = "lost"  # it ended while nobody could see how (its launcher died, or its node)


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a container ended. ``exit_status`` is what a shell would show: 128 + n for signal n."""

    by: EndedBy
    exit_status: int | None = None
    reason: str = ""
    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    wall_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the command itself said that it succeeded."""
        return self.by is EndedBy.EXIT and self.exit_status == 0
