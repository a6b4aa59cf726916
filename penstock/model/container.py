"""A command in a cgroup of its own: what it asks for, and how it ended."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]
#: More than any host has; in the kernel's microseconds it is still an integer.
MOST_CORES = 65536
#: Arguments or variables of one command; Linux lets all of them together take 2 MiB.
MOST_WORDS = 65536
#: Monotasks, tasks or ids of one message.
MOST_AT_ONCE = 131_072
#: Name of a limit → its new value; None takes it away.
LimitsChange = Mapping[str, int | float | str | None]


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limits of one container; ``None`` leaves the kernel's default (no limit).

    ``memory_max_bytes`` kills on excess (the kernel's OOM killer, inside the container only); ``memory_high_bytes``
    reclaims and throttles instead. ``cpu_burst_s`` is CPU time that may be saved up while little is used and spent on
    top of ``cpu_cores`` in one period of 100 ms. ``cpus`` is a list as the kernel writes it (``0-3,8``). Disk limits
    hold for each disk of the host. ``cpu_weight`` divides what nobody was promised; a promise has its own weight.
    """

    cpu_cores: Annotated[float, msgspec.Meta(gt=0, le=MOST_CORES)] | None = None
    cpu_burst_s: Annotated[float, msgspec.Meta(gt=0, le=0.1)] | None = None
    cpu_weight: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    cpus: Annotated[str, msgspec.Meta(pattern="^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$")] | None = None
    memory_high_bytes: Positive | None = None
    memory_max_bytes: Positive | None = None
    disk_read_bytes_per_s: Positive | None = None
    disk_write_bytes_per_s: Positive | None = None
    disk_read_ops_per_s: Positive | None = None
    disk_write_ops_per_s: Positive | None = None
    network_egress_bytes_per_s: Positive | None = None
    network_ingress_bytes_per_s: Positive | None = None
    pids_max: Positive | None = None

    def changed(self, change: LimitsChange) -> Limits:
        """These limits with some changed; those that are not named stay.

        Raises:
            msgspec.ValidationError: an unknown name or an impossible value; the message says which.
        """
        merged = {name: getattr(self, name) for name in self.__struct_fields__} | dict(change)
        return msgspec.convert({name: value for name, value in merged.items() if value is not None}, Limits)


class Choice(enum.StrEnum):
    """What an opportunistic container says to being the one that is preempted."""

    PREFER = "prefer"  # rather me: asked first
    NORMAL = "normal"
    AVOID = "avoid"  # rather not me: asked last


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Before it is preempted the container gets ``signal`` and then ``grace_s`` seconds to save what it can.

    Memory that is wanted at once (a promise is stalled) may cut the time short.
    """

    signal: Annotated[int, msgspec.Meta(ge=1, le=64)] = 15
    grace_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 5.0


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A command to run. The user is never part of it: work runs as the peer of the socket it came from.

    ``cpu_cores`` and ``memory_bytes`` are the *promise* (what the node sets aside for a regular container, what an
    opportunistic one asks of the slack); ``limits`` is what it may at most use. ``env`` is the whole environment but
    for PATH, HOME, USER, LOGNAME and SHELL, which default to the user's. ``stdio`` is a token under which descriptors
    were passed (docs/protocol.md); without it output goes to files kept by the agent. An *attached* container
    (``detach`` false) is killed when the connection that launched it closes while the agent runs.
    ``network_bytes_per_s`` is what it is promised to be able to send. ``preempt`` and ``notice`` matter while it is
    opportunistic. With ``oom_group`` the kernel, when it kills for memory, kills the whole container and not one
    process of it. With ``strict`` it is not started where the host cannot enforce one of its limits.
    """

    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=MOST_WORDS)]
    name: Annotated[str, msgspec.Meta(max_length=128)] = ""
    env: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_WORDS)] = {}
    cwd: str = "/"
    limits: Limits = Limits()
    cpu_cores: Annotated[float, msgspec.Meta(ge=0, le=MOST_CORES)] = 0.0
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    network_bytes_per_s: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    opportunistic: bool = False
    preempt: Choice = Choice.NORMAL
    notice: Notice | None = None
    oom_group: bool = False
    detach: bool = False
    strict: bool = False
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
    LOST = "lost"  # nobody could see how it ended: its launcher died, or its node


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
