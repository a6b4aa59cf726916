"""MessagePack-RPC over asyncio streams: the only package that connects :mod:`penstock.wire` to sockets."""

from penstock.transport.listener import Listener, remove_dead_socket
from penstock.transport.peer import Handler, RpcPeer, connect_tcp, connect_unix

__all__ = ["Handler", "Listener", "RpcPeer", "connect_tcp", "connect_unix", "remove_dead_socket"]
