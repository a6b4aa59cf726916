"""The three messages of MessagePack-RPC (github.com/msgpack-rpc/msgpack-rpc, spec.md).

``params`` is an array with one map of named parameters, or an empty array. Thus methods can gain parameters, and errors
can name the invalid one, while any MessagePack-RPC library works as a client: ``client.call("submit", {...})``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.wire.errors import ErrorBody

REQUEST, RESPONSE, NOTIFICATION = 0, 1, 2


class Request(msgspec.Struct, frozen=True):
    """``[0, id, method, params]``: expects a response with the same id."""

    id: int
    method: str
    params: Any  # the array; for a typed method, the decoded parameters


class Response(msgspec.Struct, frozen=True):
    """``[1, id, error, result]``: exactly one of error and result is not nil, or both are nil."""

    id: int
    error: ErrorBody | None
    result: Any


class Notification(msgspec.Struct, frozen=True):
    """``[2, method, params]``: expects no answer."""

    method: str
    params: Any  # as in Request


Message = Request | Response | Notification
