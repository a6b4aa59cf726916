"""The three messages of MessagePack-RPC (github.com/msgpack-rpc/msgpack-rpc, spec.md).

``params`` is an array with one map of named parameters, or an empty array. So methods can grow, and an error can name
the parameter at fault, while any MessagePack-RPC library remains a client: ``client.call("submit", {...})``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.wire.errors import ErrorBody

REQUEST, RESPONSE, NOTIFICATION = 0, 1, 2


class Request(msgspec.Struct, frozen=True):
    """``[0, id, method, params]``: wants a response with the same id."""

    id: int
    method: str
    params: Any  # the array; or, of a typed method, the parameters


class Response(msgspec.Struct, frozen=True):
    """``[1, id, error, result]``: exactly one of error and result is not nil, or both are nil."""

    id: int
    error: ErrorBody | None
    result: Any


class Notification(msgspec.Struct, frozen=True):
    """``[2, method, params]``: wants no answer."""

    method: str
    params: Any  # as a request's


Message = Request | Response | Notification
