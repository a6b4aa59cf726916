"""Messages about containers.

They are apart from :mod:`penstock.wire.agent_api`, of which they are a part, because ``penstock run`` starts sooner
without the others.
"""

from typing import Annotated

import msgspec

from penstock.model.container import ContainerSpec, Ended, Limits
from penstock.model.profile import Profile
from penstock.wire.connection_api import Notice, Params, Result

MOST_OFFSET = 2**63 - 1  # the largest file offset (off_t)


class Launch(Params, frozen=True):
    """Start a command in a container of its own on this host."""

    container: ContainerSpec


class Launched(Result, frozen=True):
    """The new container. ``not_enforced`` maps each limit that this host cannot enforce to the reason and remedy."""

    container: str
    pid: int
    not_enforced: dict[str, str]


class ContainerRef(Params, frozen=True):
    """A container by its id."""

    container: str


class Attach(ContainerRef, frozen=True):
    """A container whose end is to be told. Not ``own``: the connection only watches it."""

    own: bool = True


class Adopt(Params, frozen=True):
    """Move a running process of the same user into a container; answered as ``launch``. ``pid`` 0 is the process that
    opened this connection. The answer for a process that is already in a container is that container. Memory charged
    before stays charged to the old cgroup, and a socket keeps its cgroup. Existing child processes stay outside unless
    ``tree`` includes the descendants. The exit status is unknown. Of the specification, ``argv`` is for display only;
    ``env``, ``cwd`` and ``stdio`` are ignored.
    """

    pid: Annotated[int, msgspec.Meta(ge=0, le=2**22)]
    container: ContainerSpec
    tree: bool = False


class Resize(Params, frozen=True):
    """Change limits of a running container to a value or to null (no limit); limits that are not named stay.

    Answered when the kernel has them. Memory shrinks only as far as no process is killed by it (docs/kernel.md).
    """

    container: str
    limits: dict[str, int | float | str | None]
    strict: bool = False


class Resized(Result, frozen=True):
    """The limits in force; ``not_enforced`` as in ``launch``."""

    limits: Limits
    not_enforced: dict[str, str]


class Follow(Params, frozen=True):
    """Make the limits of a container follow a profile from now on, slot by slot (Elasecutor §III); null stops that.
    A resource has at most 32,768 slots. With ``strict``, a profile with a limit that this host cannot enforce is
    refused, and nothing changes."""

    container: str
    profile: Profile | None
    strict: bool = False


class SignalContainer(Params, frozen=True):
    """Send a signal to the container's first process and its process group."""

    container: str
    signal: Annotated[int, msgspec.Meta(ge=1, le=64)]


class ReadOutput(Params, frozen=True):
    """Read a container's output from ``offset`` bytes on."""

    container: str
    stream: Annotated[str, msgspec.Meta(pattern="^(stdout|stderr)$")] = "stdout"
    offset: Annotated[int, msgspec.Meta(ge=0, le=MOST_OFFSET)] = 0


class Output(Result, frozen=True):
    """``data`` from ``offset`` on (at most 256 KiB); ``offset`` exceeds the requested one where output was dropped."""

    data: bytes
    offset: int
    size: int


class ContainerEnded(Notice, frozen=True):
    """Agent → framework: a container that this connection launched (or attached to) ended."""

    METHOD = "container_ended"
    container: str
    ended: Ended
