"""The three messages of MessagePack-RPC (github.com/msgpack-rpc/msgpack-rpc, spec.md).

``params`` is an array with one map of named parameters, or an empty array. So methods can grow, and an error can name
the parameter at fault, while any MessagePack-RPC library remains a client: ``client.call("submit", {...})``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.wire.errors import ErrorBody

REQUEST, RESPONSE, NOTIFICATION = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Request:
    """``[0, id, method, params]``: wants a response with the same id."""

    id: int
    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class Response:
    """``[1, id, error, result]``: exactly one of error and result is not nil, or both are nil."""

    id: int
    error: ErrorBody | None
    result: Any


@dataclass(frozen=True, slots=True)
class Notification:
    """``[2, method, params]``: wants no answer."""

    method: str
    params: Any


Message = Request | Response | Notification
