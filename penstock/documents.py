"""What agent and master say alike in the JSON of their HTTP, for their OpenAPI documents. PURE: types, nothing else."""

from __future__ import annotations

from typing import Literal

import msgspec


class Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every key is always there."""


class Certificate(Said, frozen=True, kw_only=True):
    """A certificate that the daemon depends on, its own or its CA's, and when it ends (Unix time)."""

    key: Literal["tls_certificate", "tls_ca"]
    file: str
    ends_at: float


class Degraded(Said, frozen=True, kw_only=True):
    """The system refuses it at the moment: what, why, since when (Unix time), and how often it was tried."""

    what: str
    why: str
    since: float
    times: int


class SetByHand(Said, frozen=True, kw_only=True):
    """A key of the configuration that was set while the daemon runs: its value as it is written, and by whom."""

    value: str
    where: str
