"""Descriptors that clients pass for their containers, over a second socket beside the framework socket.

One message per connection: a token of 32 hexadecimal characters, with exactly three descriptors (stdin, stdout, stderr)
as SCM_RIGHTS; answered by ``+``. ``ContainerSpec.stdio`` then has the token; only the same user may use it, once. A
launch uses it at once; for a task that waits to be placed here, the descriptors are kept as long as the connection that
asked for it.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import os
import re
import socket
from collections import Counter
from pathlib import Path

import structlog

from agent import process
from agent.peer_credentials import user_of
from penstock.peer_credentials import peer_uid

log = structlog.get_logger()
_TOKEN = re.compile(rb"[0-9a-f]{32}\Z")
_MOST_DESCRIPTORS = 8  # the kernel drops the rest
#: Unclaimed descriptors are closed after this time.
UNCLAIMED_S = 10.0
#: The limit per user on unclaimed tokens, and on connections without a message.
UNCLAIMED_PER_USER = 64
#: When descriptors run out, the delay before accepting again.
_FULL_WAIT_S = 0.5


class Stdio:
    """Holds passed descriptors until their launch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._held: dict[str, tuple[str, tuple[int, int, int]]] = {}
        self._kept: dict[str, int] = {}  # token → the connection that it is kept for
        self._silent: Counter[int] = Counter()  # connections without a message, by uid
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.bind(str(path))
        path.chmod(0o666)  # the kernel identifies the peer
        self._socket.listen(128)
        self._again: asyncio.TimerHandle | None = None  # while descriptors have run out
        self._listen()

    def take(self, token: str, user: str) -> tuple[int, int, int]:
        """Return the descriptors passed under a token; the caller closes them.

        Raises:
            OSError: no descriptors were passed under that token by that user.
        """
        owner, descriptors = self._held.get(token, ("", (-1, -1, -1)))
        if owner != user:
            raise FileNotFoundError("no descriptors were passed under this `stdio` token, or they timed out")
        del self._held[token]
        self._kept.pop(token, None)
        return descriptors

    def keep(self, token: str, user: str, session: int) -> None:
        """Keep the descriptors of a connection's task that waits to be placed. Unknown tokens are ignored."""
        if self._held.get(token, ("",))[0] == user:
            self._kept[token] = session

    def refuse(self, token: str, user: str) -> None:
        """Close the descriptors of a refused launch or task: who reads from such a pipe waits for its end."""
        if self._held.get(token, ("",))[0] == user:
            self._expire(token)

    def drop(self, session: int) -> None:
        """Close the descriptors kept for a closed connection."""
        for token in [token for token, owner in self._kept.items() if owner == session]:
            del self._kept[token]
            self._expire(token)

    def close(self) -> None:
        """Stop listening; close unclaimed descriptors."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._path.unlink(missing_ok=True)
        self._kept.clear()
        for token in list(self._held):
            self._expire(token)

    def _listen(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError as error:  # usually the client disconnected before it was accepted
            if error.errno in (errno.EMFILE, errno.ENFILE):  # the socket stays readable and would spin the loop
                log.warning("passed descriptors cannot be received", why=str(error))
                self._loop.remove_reader(self._socket)
                self._again = self._loop.call_later(_FULL_WAIT_S, self._listen)
            return
        if connection.fileno() >= process.descriptors_for_clients():
            connection.close()
            return
        uid = peer_uid(connection)
        # A client's message has mostly come by now: watching the connection takes ten system calls more.
        if self._silent[uid] >= UNCLAIMED_PER_USER or self._receive(connection, uid):
            connection.close()
            return
        self._silent[uid] += 1
        waiting = self._loop.call_later(UNCLAIMED_S, self._drop, connection, uid)
        self._loop.add_reader(connection, self._readable, connection, uid, waiting)

    def _drop(self, connection: socket.socket, uid: int) -> None:
        self._loop.remove_reader(connection)
        connection.close()
        self._silent[uid] -= 1
        if not self._silent[uid]:
            del self._silent[uid]

    def _readable(self, connection: socket.socket, uid: int, waiting: asyncio.TimerHandle) -> None:
        waiting.cancel()
        self._receive(connection, uid)
        self._drop(connection, uid)

    def _receive(self, connection: socket.socket, uid: int) -> bool:
        """Receive the descriptors that a client passes; return whether there was its message, or an error.

        ``socket.recv_fds`` ignores flags (Python 3.11), so that it would wait, and a child could inherit them.
        """
        found = array.array("i")
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        try:
            data, parts, _, _ = connection.recvmsg(64, socket.CMSG_LEN(_MOST_DESCRIPTORS * found.itemsize), flags)
            for level, kind, part in parts:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    found.frombytes(part[: len(part) - len(part) % found.itemsize])
            if self._hold(data, found.tolist(), uid):
                connection.send(b"+", socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            log.info("passed descriptors not received", why=str(error))
        return True

    def _hold(self, data: bytes, descriptors: list[int], uid: int) -> bool:
        """Hold received descriptors, or close them: whoever reads from such a pipe waits for its end."""
        with contextlib.ExitStack() as received:
            for descriptor in descriptors:
                received.callback(os.close, descriptor)
            user, token = user_of(uid), data.decode("ascii", "replace")
            unclaimed = sum(owner == user for owner, _ in self._held.values())
            known = token in self._held
            if not _TOKEN.match(data) or len(descriptors) != 3 or known or unclaimed >= UNCLAIMED_PER_USER:
                return False
            self._held[token] = (user, (descriptors[0], descriptors[1], descriptors[2]))
            received.pop_all()
        self._loop.call_later(UNCLAIMED_S, self._expire, token)
        return True

    def _expire(self, token: str) -> None:
        if token in self._kept:
            return
        held = self._held.pop(token, None)
        if held is not None:
            for descriptor in held[1]:
                os.close(descriptor)
