"""MessagePack-RPC over asyncio streams: the one place where :mod:`penstock.wire` meets sockets."""

from penstock.transport.listener import Listener, remove_dead_socket
from penstock.transport.peer import Handler, RpcPeer, connect_tcp, connect_unix

__all__ = ["Handler", "Listener", "RpcPeer", "connect_tcp", "connect_unix", "remove_dead_socket"]
