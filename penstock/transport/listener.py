"""Listening sockets for :class:`~penstock.transport.peer.RpcPeer` whose peers are authenticated before a byte is read.

On a Unix socket the kernel vouches for the peer's user: only root and the user of this process come in. On a TCP port
peers show certificates. A handshake begins at the peer's first byte, if that byte opens one. Each handshake gets the
TLS context of its moment, so a renewed certificate holds from the next connection on, and an :class:`RpcPeer` exists
only once the handshake is over.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from penstock import paths
from penstock.peer_credentials import is_trusted, peer_uid
from penstock.transport.peer import HANDSHAKE_TIMEOUT_S, RpcPeer

#: The largest number of connections of one address in their handshake.
HANDSHAKES_PER_ADDRESS = 32
#: The largest number of connections of one address that have sent nothing yet; a new one replaces the oldest.
SILENT_PER_ADDRESS = 32
#: The first byte of a TLS handshake (RFC 8446, section 5.1: ContentType).
_HANDSHAKE_RECORD = b"\x16"
_OUT_OF_DESCRIPTORS_WAIT_S = 0.5


class Listener:
    """A listening socket; :attr:`address` is its actual address."""

    def __init__(
        self, make: Callable[[], RpcPeer], refused: Callable[[str, Exception], None] = lambda address, error: None
    ) -> None:
        """``make`` is called for each authenticated connection, ``refused`` for every other connection."""
        self._make = make
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._path: Path | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._greeting: Counter[str] = Counter()
        # Address → its silent connections, the oldest first; a future's result is whether its connection may go on.
        self._silent: defaultdict[str, list[asyncio.Future[bool]]] = defaultdict(list)
        self.address = ""

    async def listen_tcp(self, host: str, port: int, tls: Callable[[], ssl.SSLContext]) -> None:
        """Open a TCP port; ``tls`` returns the context of the next handshake.

        Raises:
            OSError: the port is taken, or the address is not of this host.
        """
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self._sockets.append(socket.create_server(address[:2], family=family, backlog=128))
        except OSError:
            self._close_sockets()
            raise
        for listening in self._sockets:
            listening.setblocking(False)
            self._spawn(self._accept(listening, lambda connection, address: self._greet(connection, address, tls)))
        name = self._sockets[0].getsockname()
        self.address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    def listen_unix(self, path: Path) -> None:
        """Open a Unix socket in a directory that only this user can change.

        Raises:
            OSError: a process listens there already, or another user can change the directory.
        """
        paths.make_private(path.parent, 0o755)
        remove_dead_socket(path)
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(str(path))
            path.chmod(0o600)
            listening.listen(128)
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)
        self._sockets.append(listening)
        self._path = path
        self._spawn(self._accept(listening, self._check_user))
        self.address = str(path)

    def close(self) -> None:
        """Accept no more connections; existing ones stay open."""
        for task in self._tasks:
            task.cancel()
        self._close_sockets()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def wait_closed(self) -> None:
        """Wait for the tasks that :meth:`close` cancelled."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(
        self, listening: socket.socket, admit: Callable[[socket.socket, Any], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(listening)
            except OSError as error:
                self._refused("", error)
                await asyncio.sleep(_OUT_OF_DESCRIPTORS_WAIT_S)
                continue
            self._spawn(admit(connection, address))

    async def _check_user(self, connection: socket.socket, _address: Any) -> None:
        uid = peer_uid(connection)
        if is_trusted(uid):
            await self._loop.connect_accepted_socket(self._make, connection)
            return
        connection.close()
        allowed = f"root or uid {os.geteuid()}" if os.geteuid() else "root"
        self._refused(f"uid {uid}", PermissionError(f"it runs as uid {uid}; only {allowed} may connect to this socket"))

    async def _greet(self, connection: socket.socket, address: Any, tls: Callable[[], ssl.SSLContext]) -> None:
        host = address[0]
        try:
            goes_on = await self._opens_handshake(connection, host)
        except OSError as error:
            connection.close()
            self._refused(f"{host}:{address[1]}", error)
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        if not goes_on or self._greeting[host] >= HANDSHAKES_PER_ADDRESS:
            connection.close()
            return
        self._greeting[host] += 1
        try:
            await self._loop.connect_accepted_socket(
                self._make, connection, ssl=tls(), ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except OSError as error:  # including ssl.SSLError, ConnectionError and TimeoutError
            connection.close()
            self._refused(f"{host}:{address[1]}", error)
        finally:
            self._greeting[host] -= 1
            if not self._greeting[host]:
                del self._greeting[host]

    async def _opens_handshake(self, connection: socket.socket, host: str) -> bool:
        """Wait for the peer's first byte and leave it unread; return False if a newer connection took this one's place.

        Raises:
            OSError: the byte opens no TLS handshake, or none came.
        """
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                while (first := _peek(connection)) is None:
                    if not await self._readable(connection, host):
                        return False
        except TimeoutError:
            raise TimeoutError(f"it sent nothing for {HANDSHAKE_TIMEOUT_S:g} s") from None
        if not first:
            raise ConnectionAbortedError("it closed the connection before it sent a byte")
        if first != _HANDSHAKE_RECORD:
            error = ssl.SSLError(ssl.SSL_ERROR_SSL, "the first byte opens no TLS handshake")
            error.reason = "WRONG_VERSION_NUMBER"  # OpenSSL's name for it
            raise error
        return True

    async def _readable(self, connection: socket.socket, host: str) -> bool:
        """Wait until a peek would not block; return False if a newer connection took this one's place."""
        silent = self._silent[host]
        if len(silent) >= SILENT_PER_ADDRESS:
            _settle(silent[0], goes_on=False)
            del silent[0]
        readable: asyncio.Future[bool] = self._loop.create_future()
        silent.append(readable)
        self._loop.add_reader(connection, lambda: _settle(readable, goes_on=True))
        try:
            return await readable
        finally:
            self._loop.remove_reader(connection)
            if readable in silent:
                silent.remove(readable)
            if not self._silent[host]:
                del self._silent[host]


def _peek(connection: socket.socket) -> bytes | None:
    """Return the first unread byte, or ``b""`` at the connection's end, or None if no byte has arrived."""
    try:
        return connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return None


def _settle(readable: asyncio.Future[bool], *, goes_on: bool) -> None:
    if not readable.done():
        readable.set_result(goes_on)


def remove_dead_socket(path: Path) -> None:
    """Remove a Unix socket that no process listens on.

    Raises:
        FileExistsError: a process listens there, or the file is not a socket.
    """
    if not path.exists():
        return
    if not path.is_socket():
        raise FileExistsError(f"{path} is there and is not a socket; remove it, or name another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
        else:
            raise FileExistsError(f"a process listens at {path} already")
