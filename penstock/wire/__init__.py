"""PURE. MessagePack-RPC: bytes in, messages out; and the declaration of every method."""

from penstock.wire.connection import Closed, RpcConnection
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.rpc import Notification, Request, Response

__all__ = ["Closed", "ErrorCode", "Notification", "Request", "Response", "RpcConnection", "RpcError"]
