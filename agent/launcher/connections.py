"""The connections of agents to the launcher: none affects another by messages that it sends or leaves unread."""

from __future__ import annotations

import array
import errno
import os
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from agent.launcher.descriptors import Selector
from agent.launcher.exits import say
from agent.launcher.messages import room, widen
from penstock.peer_credentials import is_trusted

#: More requests than a socket's buffer holds.
_MOST_REQUESTS = 100_000
#: The answer to a request that was to begin something.
_NO_DESCRIPTOR = "the launcher has no free file descriptor; wait for the end of other containers"
_DESCRIPTORS = 4  # stdin, stdout, stderr, and cgroup.procs
_room = room()  # of the one thread


@dataclass(slots=True, eq=False)
class Connection:
    """A connection, its peer's pid, and messages not sent yet."""

    peer: socket.socket
    pid: int
    unsent: deque[bytes] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class Connections:
    """The open connections of processes of root and of the launcher's user.

    ``_answer`` gets a request with its id and its descriptors, which are closed afterwards; None: its answer follows.
    """

    _listening: socket.socket
    _selector: Selector
    _on_opened: Callable[[Connection], None]
    _answer: Callable[[Connection, int, dict[str, Any], list[int]], dict[str, Any] | None]
    _open: set[Connection] = field(init=False, default_factory=set)
    _catching_up: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._selector.watch(self._listening, self._accept)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._open

    def pids(self) -> set[int]:
        """Return the pids of the connected agents."""
        return {connection.pid for connection in self._open}

    def send_to_all(self, message: dict[str, Any]) -> None:
        """Send a message to every agent."""
        for connection in list(self._open):
            self.send(connection, message)

    def send(self, connection: Connection, message: dict[str, Any]) -> None:
        """Send a message, at once or when its agent reads; no effect on a closed connection."""
        connection.unsent.append(msgpack.packb(message))
        self._flush(connection)

    def serve_others_first(self, asking: Connection) -> None:
        """Serve the pending requests of other connections.

        An agent may have died right after requesting starts. The answer to its successor must include these, or the
        successor would start the same work again.
        """
        if self._catching_up:  # another connection has asked which containers run
            return
        self._catching_up = True
        for connection in self._open - {asking}:
            for _ in range(_MOST_REQUESTS):
                if not self._receive(connection):
                    break
        self._catching_up = False

    def _accept(self, _: int) -> None:
        accepted = self._listening.accept()[0]
        pid, uid, _ = struct.unpack("iII", accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if not is_trusted(uid):
            accepted.close()
            return
        accepted.setblocking(False)
        widen(accepted)
        connection = Connection(accepted, pid)
        self._open.add(connection)
        self._selector.watch(accepted, lambda events: self._serve(connection, events))
        self._on_opened(connection)

    def _serve(self, connection: Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if events & selectors.EVENT_READ and connection in self._open:
            self._receive(connection)

    def _receive(self, connection: Connection) -> bool:
        """Serve one request; return False if there was none, or if the agent is gone."""
        try:
            data, descriptors, complete = _receive_with_descriptors(connection.peer)
        except BlockingIOError:
            return False
        except OSError:
            data, descriptors, complete = b"", [], True
        if not data:
            self._drop(connection)
            return False
        try:
            request = msgpack.unpackb(data)
            number = int(request["id"])
            answer = self._answer(connection, number, request, descriptors) if complete else {"error": _NO_DESCRIPTOR}
        except (KeyError, TypeError, ValueError) as error:  # msgpack's errors are ValueErrors, too
            say(f"not a request: {error!r}")
            self._drop(connection)
            return False
        except OSError as error:
            answer = {"error": f"{os.strerror(error.errno or 0)}: {request['do']}"}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if answer is not None:
            self.send(connection, {"id": number, **answer})
        return True

    def _drop(self, connection: Connection) -> None:
        if connection in self._open:
            self._open.discard(connection)
            self._selector.unregister(connection.peer)
            connection.peer.close()

    def _flush(self, connection: Connection) -> None:
        """Send as much as the socket takes; an agent that does not read delays no other."""
        if connection not in self._open:
            return
        while connection.unsent:
            try:
                connection.peer.send(connection.unsent[0])
            except BlockingIOError:
                break
            except OSError:
                self._drop(connection)  # its successor asks again
                return
            connection.unsent.popleft()
        self._selector.want(connection.peer, to_write=bool(connection.unsent))


def _receive_with_descriptors(connection: socket.socket) -> tuple[bytes, list[int], bool]:
    """Receive a message with close-on-exec descriptors: socket.recv_fds() drops its flags (Python 3.11).

    Return also whether all its descriptors came: those for which this process has no number are lost.
    """
    space = socket.CMSG_SPACE(_DESCRIPTORS * struct.calcsize("i"))
    size, ancillary, flags, _ = connection.recvmsg_into([_room], space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    return bytes(memoryview(_room)[:size]), list(descriptors), not flags & socket.MSG_CTRUNC


def listen(path: Path) -> socket.socket:
    """Listen at a path unless a launcher already does.

    Raises:
        OSError: a launcher answers there already; its containers must not be taken from it.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as trial:
        if trial.connect_ex(str(path)) == 0:
            raise OSError(errno.EADDRINUSE, "a launcher answers there already", str(path))
    path.unlink(missing_ok=True)
    old = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(old)
    listening.listen(16)
    return listening
