"""A command in a cgroup of its own: its specification and its end."""

import enum
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]
#: More cores than any host has; still an integer in the kernel's microseconds.
MOST_CORES = 65536
#: The most processors that a kernel is built for (arch/x86/Kconfig, NR_CPUS; as many on other architectures).
MOST_PROCESSORS = 8192
#: The longest list of processors that names each by itself: four digits and a comma.
MOST_CPUS_CHARACTERS = 5 * MOST_PROCESSORS
Cpus = Annotated[str, msgspec.Meta(max_length=MOST_CPUS_CHARACTERS, pattern="^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$")]
#: The most arguments or variables of one command; Linux limits their total size to 2 MiB.
MOST_WORDS = 65536
#: The most monotasks, tasks or ids in one message.
MOST_AT_ONCE = 131_072
#: The most stages in one message.
MOST_STAGES = 4096
#: Name of a limit → its new value; None removes the limit.
LimitsChange = Mapping[str, int | float | str | None]
#: As much of a variable's name as a message shows (characters).
_SHOWN = 40


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limits of one container; ``None`` leaves the kernel's default (no limit).

    Exceeding ``memory_max_bytes`` kills (the kernel's OOM killer, inside the container only); ``memory_high_bytes``
    reclaims and throttles instead. ``cpu_burst_s`` is unused CPU time that may be saved and spent on top of
    ``cpu_cores`` in one period of 100 ms. ``cpus`` is a list in the kernel's format (``0-3,8``): at most 8192
    processors, none above 8191. Disk limits apply to each disk of the host. ``cpu_weight`` divides the cores that are
    not promised; a promise has its own weight.
    """

    cpu_cores: Annotated[float, msgspec.Meta(gt=0, le=MOST_CORES)] | None = None
    cpu_burst_s: Annotated[float, msgspec.Meta(gt=0, le=0.1)] | None = None
    cpu_weight: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    cpus: Cpus | None = None
    memory_high_bytes: Positive | None = None
    memory_max_bytes: Positive | None = None
    disk_read_bytes_per_s: Positive | None = None
    disk_write_bytes_per_s: Positive | None = None
    disk_read_ops_per_s: Positive | None = None
    disk_write_ops_per_s: Positive | None = None
    network_egress_bytes_per_s: Positive | None = None
    network_ingress_bytes_per_s: Positive | None = None
    pids_max: Positive | None = None

    def changed(self, change: LimitsChange) -> "Limits":
        """Return these limits with some changed; limits that are not named stay.

        Raises:
            msgspec.ValidationError: an unknown name or an invalid value; the message names it.
        """
        merged = {name: getattr(self, name) for name in self.__struct_fields__} | dict(change)
        return msgspec.convert({name: value for name, value in merged.items() if value is not None}, Limits)


class Choice(enum.StrEnum):
    """An opportunistic container's preference when a container is chosen for preemption."""

    PREFER = "prefer"  # chosen first
    NORMAL = "normal"
    AVOID = "avoid"  # chosen last


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The warning before a preemption: ``signal``, then ``grace_s`` seconds to save state.

    Urgent need for memory (a container with a promise is stalled) may shorten the time.
    """

    signal: Annotated[int, msgspec.Meta(ge=1, le=64)] = 15
    grace_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 5.0


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A command to run. It does not name the user: work runs as the peer of the socket that it came from.

    ``cpu_cores`` and ``memory_bytes`` are the *promise* (reserved on the node for a regular container, requested from
    the slack for an opportunistic one); ``limits`` are the most that it may use. ``env`` is the whole environment
    except PATH, HOME, USER, LOGNAME and SHELL, which default to the user's. ``stdio`` is the token of passed
    descriptors (docs/protocol.md); without it the output goes to files kept by the agent. An *attached* container
    (``detach`` false) is killed when its launching connection closes while the agent runs. ``network_bytes_per_s`` is
    the promised sending rate. ``preempt`` and ``notice`` apply while it is opportunistic. With ``oom_group`` the
    kernel's OOM killer kills the whole container instead of one process. With ``strict`` the container is not started
    if the host cannot enforce one of its limits.
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


def wrong_texts(spec: ContainerSpec) -> Iterator[tuple[str, str, str]]:
    """Yield each argument, variable and directory with which the kernel starts no process: its name, the error, and
    the remedy.
    """
    names = "".join(spec.env)
    texts = "".join((*spec.argv, *spec.env.values(), spec.cwd, names))
    if "\0" not in texts and "=" not in names and "" not in spec.env:
        return  # the rule; looked at one by one, the texts take longer
    for number, argument in enumerate(spec.argv):
        if "\0" in argument:
            yield f"argv[{number}]", "has a null character, which no argument may have", "remove it"
    for name, value in spec.env.items():
        for wrong, remedy in wrong_variable(name, value):
            yield f"env[{name[:_SHOWN]!r}]", wrong, remedy
    if "\0" in spec.cwd:
        yield "cwd", "has a null character, which no directory may have", "remove it"


def wrong_variable(name: str, value: str) -> Iterator[tuple[str, str]]:
    """Yield the error and the remedy for a variable with which the kernel starts no process."""
    if not name or "=" in name:
        yield "the name of a variable is not empty and has no '='", "rename it"
    elif "\0" in name or "\0" in value:
        yield "has a null character, which no variable may have", "remove it"


class EndedBy(enum.StrEnum):
    """Why a container ended."""

    EXIT = "exit"  # the command exited, with an exit status
    SIGNAL = "signal"  # by a signal that Penstock did not send
    OOM = "oom"  # the kernel enforced memory.max
    PREEMPTED = "preempted"  # opportunistic, and its resources were needed (UBIS §IV.C)
    CANCELLED = "cancelled"  # on a user's request
    DISCONNECTED = "disconnected"  # attached, and its client disconnected
    REFUSED = "refused"  # never started: the node could not keep the promise
    FAILED = "failed"  # never started: the command or its environment could not be set up
    LOST = "lost"  # the end was not observed, as the launcher or the node died


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a container ended. ``exit_status`` is as in a shell: 128 + n for signal n."""

    by: EndedBy
    exit_status: int | None = None
    reason: str = ""
    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    wall_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the command exited with status 0."""
        return self.by is EndedBy.EXIT and self.exit_status == 0
