"""The three messages of MessagePack-RPC (github.com/msgpack-rpc/msgpack-rpc, spec.md).

``params`` is an array with one map of named parameters, or an empty array. Thus methods can gain parameters, and errors
can name the invalid one, while any MessagePack-RPC library works as a client: ``client.call("submit", {...})``.
"""

from typing import Annotated, Any, Generic, TypeVar

import msgspec

from penstock.wire.errors import ErrorBody

REQUEST, RESPONSE, NOTIFICATION = 0, 1, 2
Id = Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]
#: The parameters: the bytes of the array (:class:`msgspec.Raw`); for a typed method, the decoded ones.
P = TypeVar("P")
#: The error, and the result: their bytes, too.
E = TypeVar("E")


class Request(msgspec.Struct, Generic[P], frozen=True, array_like=True, tag=REQUEST, forbid_unknown_fields=True):
    """``[0, id, method, params]``: expects a response with the same id."""

    id: Id
    method: str
    params: P


class Response(msgspec.Struct, Generic[E], frozen=True, array_like=True, tag=RESPONSE, forbid_unknown_fields=True):
    """``[1, id, error, result]``: exactly one of error and result is not nil, or both are nil."""

    id: Id
    error: E
    result: msgspec.Raw


class Notification(
    msgspec.Struct, Generic[P], frozen=True, array_like=True, tag=NOTIFICATION, forbid_unknown_fields=True
):
    """``[2, method, params]``: expects no answer."""

    method: str
    params: P


Message = Request[Any] | Response[ErrorBody | None] | Notification[Any]
