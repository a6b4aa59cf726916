"""The bases of an agent's messages, and the greeting with its method: the part of :mod:`penstock.wire.agent_api` and
:mod:`penstock.wire.agent_methods` that every client needs.
"""

from typing import Annotated, ClassVar

import msgspec

from penstock.model.resources import Capacity
from penstock.wire.method import Caller, declare

#: The version of this protocol, stated in the first message of a connection.
PROTOCOL = 1


class Params(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Parameters of a method. Unknown and missing fields are errors that name the field."""


class Notice(Params, frozen=True):
    """Parameters of a notification of the agent to a framework. The type names the notification."""

    METHOD: ClassVar[str]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result. Unknown fields are ignored, so that a newer agent may add some."""


class Nothing(Params, frozen=True):
    """No parameters."""


class Done(Result, frozen=True):
    """Success without a result."""


class Hello(Params, frozen=True):
    """First message of every connection: the client's protocol version and name."""

    protocol: int
    client: Annotated[str, msgspec.Meta(max_length=128)] = ""


class Welcome(Result, frozen=True):
    """The agent's greeting. ``enforced``: the host's enforceable limits as in ``penstock check``: ``cpu``, ``kill``…
    ``skipped_tasks``: it reads ``skipped`` of a stage's progress."""

    protocol: int
    version: str
    node: str
    user: str
    capacity: Capacity
    network_bypass_bytes: int
    max_frame_bytes: int
    enforced: list[str]
    master: bool
    skipped_tasks: bool = False


# fmt: off
HELLO = declare(
    "hello", Hello(protocol=PROTOCOL, client="example"),
    Welcome(
        protocol=PROTOCOL, version="0.1.0", node="alpha", user="eve",
        capacity=Capacity(cores=2.0, memory_bytes=2 << 30), network_bypass_bytes=16384, max_frame_bytes=8388608,
        enforced=["cpu", "memory"], master=True, skipped_tasks=True,
    ),
    Caller.EVERYBODY,
)
# fmt: on
