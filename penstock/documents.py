"""Types common to the agent's and the master's JSON documents over HTTP, for their OpenAPI documents. PURE."""

from __future__ import annotations

from typing import Literal

import msgspec


class Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of JSON documents. Every key is always present."""


class Certificate(Said, frozen=True, kw_only=True):
    """A certificate that the daemon depends on, its own or its CA's, and its expiry (Unix time)."""

    key: Literal["tls_certificate", "tls_ca"]
    file: str
    ends_at: float


class Degraded(Said, frozen=True, kw_only=True):
    """A function that fails at present: its name, the reason, the start (Unix time), and the number of attempts."""

    what: str
    why: str
    since: float
    times: int


class SetByHand(Said, frozen=True, kw_only=True):
    """A configuration key that was set while the daemon runs: its value in the form of a file, and the user."""

    value: str
    where: str
