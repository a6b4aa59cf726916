"""A TCP port for :class:`~penstock.transport.peer.RpcPeer`, with or without TLS.

With TLS each connection gets the context of its moment, so that renewed certificates hold from the next one on, and a
peer exists only once the handshake is over: who cannot show a certificate is never heard.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from penstock.transport.peer import HANDSHAKE_TIMEOUT_S, RpcPeer

#: So many connections of one address may be in their handshake.
HANDSHAKES_PER_ADDRESS = 32
_OUT_OF_DESCRIPTORS_WAIT_S = 0.5


class Listener:
    """An open port; :attr:`address` tells which it is."""

    def __init__(
        self,
        make: Callable[[], RpcPeer],
        tls: Callable[[], ssl.SSLContext] | None = None,
        refused: Callable[[str, Exception], None] = lambda address, error: None,
    ) -> None:
        """``tls`` gives the context for the next connection; ``refused`` hears of handshakes that failed."""
        self._make = make
        self._tls = tls
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._greeting: Counter[str] = Counter()
        self.address = ""

    async def listen(self, host: str, port: int) -> None:
        """Open it.

        Raises:
            OSError: the port is taken, or the address is not of this host.
        """
        if self._tls is None:
            self._server = await self._loop.create_server(self._make, host, port)
            opened: Sequence[Any] = self._server.sockets
        else:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            try:
                for family, _, _, _, address in dict.fromkeys(found):
                    self._sockets.append(socket.create_server(address[:2], family=family, backlog=128))
            except OSError:
                self._close_sockets()
                raise
            for listening in self._sockets:
                listening.setblocking(False)
                self._spawn(self._accept(listening, self._tls))
            opened = self._sockets
        name = opened[0].getsockname()
        self.address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    def close(self) -> None:
        """Take no more connections; those that there are stay."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        self._close_sockets()

    async def wait_closed(self) -> None:
        """After :meth:`close`."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket, tls: Callable[[], ssl.SSLContext]) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(listening)
            except OSError as error:
                self._refused("", error)
                await asyncio.sleep(_OUT_OF_DESCRIPTORS_WAIT_S)
                continue
            if self._greeting[address[0]] >= HANDSHAKES_PER_ADDRESS:
                connection.close()
                continue
            self._spawn(self._greet(connection, address, tls()))

    async def _greet(self, connection: socket.socket, address: Any, context: ssl.SSLContext) -> None:
        host = address[0]
        self._greeting[host] += 1
        try:
            await self._loop.connect_accepted_socket(
                self._make, connection, ssl=context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except OSError as error:  # ssl.SSLError, ConnectionError and TimeoutError are such
            connection.close()
            self._refused(f"{host}:{address[1]}", error)
        finally:
            self._greeting[host] -= 1
            if not self._greeting[host]:
                del self._greeting[host]
