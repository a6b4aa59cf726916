"""Types common to the agent's and the master's JSON documents over HTTP. PURE.

The daemons make their documents as these types, and the OpenAPI documents and the tables of docs/ are generated from
them: a field is declared once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

Unit = Literal["cores", "bytes", "share"]


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of JSON documents. Every key is always present."""


class Resource(Document, frozen=True, kw_only=True):
    """Amounts in ``unit``: cores, bytes, or shares of the time of the disks or of the link.

    ``promised``: to regular work (null: unknown, or the resource cannot be promised); ``used``: by containers and
    frameworks; ``slack``: T_alloc × capacity − used, not below 0 (UBIS §IV.A).
    """

    unit: Unit
    capacity: float
    promised: float | None
    used: float
    slack: float


Resources = dict[Literal["cpu", "memory", "disk", "network"], Resource]


class Histogram(Document, frozen=True, kw_only=True):
    """Durations: how many were up to each of ``bounds_s``. ``counts`` has one element more, for longer ones; ``sum_s``
    is the sum of all durations.
    """

    bounds_s: Sequence[float]
    counts: Sequence[int]
    sum_s: float


class Certificate(Document, frozen=True, kw_only=True):
    """A certificate that the daemon depends on, its own or its CA's, and its expiry (Unix time)."""

    key: Literal["tls_certificate", "tls_ca"]
    file: str
    ends_at: float


class Degraded(Document, frozen=True, kw_only=True):
    """A function that fails at present, for lack of file descriptors, disk space or a port.

    ``what``: its name (``samples``, ``outputs``, ``journal``, ``repairs``, ``http``); ``why``: the reason; ``since``:
    the start (Unix time); ``times``: the number of attempts.
    """

    what: str
    why: str
    since: float
    times: int


class SetByHand(Document, frozen=True, kw_only=True):
    """A configuration key that was set while the daemon runs: its value in the form of a file, and the user and the
    time.
    """

    value: str
    where: str
