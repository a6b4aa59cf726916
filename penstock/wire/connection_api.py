"""The bases of all messages of an agent, and the greeting. A part of :mod:`penstock.wire.agent_api`."""

from typing import Annotated, ClassVar

import msgspec

from penstock.model.resources import Capacity

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
    """The agent's greeting. ``enforced``: the host's enforceable limits as in ``penstock check``: ``cpu``, ``kill``…"""

    protocol: int
    version: str
    node: str
    user: str
    capacity: Capacity
    network_bypass_bytes: int
    max_frame_bytes: int
    enforced: list[str]
    master: bool
