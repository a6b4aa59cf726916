"""Blocking connections to the agent's sockets; one of them passes standard input, output and error."""

from __future__ import annotations

import _socket as socket  # as in penstock.peer_credentials
import os
import sys
import time
from contextlib import closing
from pathlib import Path

from penstock.client.errors import AgentUnavailable
from penstock.client.greeting import unavailable
from penstock.peer_credentials import check_server

#: Longest waits for the agent's reply, and for room in its queue of connections (seconds).
_REPLY_S, _QUEUE_S = 10.0, 10.0
_QUEUE_PAUSE_S = 0.01
_INT_BYTES = 4  # of a descriptor in a message (cmsg(3), SCM_RIGHTS)


def pass_stdio(agent_socket: Path, stdio: tuple[int, int, int]) -> str:
    """Pass copies of the descriptors to the agent; return the token that names them in ``ContainerSpec.stdio``, once.

    Raises:
        AgentUnavailable: there is no agent, or it did not accept them.
    """
    token = os.urandom(16).hex()
    path = agent_socket.with_name("stdio.sock")
    try:
        with closing(connected(path, socket.SOCK_SEQPACKET)) as sock:
            sock.settimeout(_REPLY_S)
            descriptors = b"".join(number.to_bytes(_INT_BYTES, sys.byteorder) for number in stdio)
            sock.sendmsg([token.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            reply = sock.recv(1)
    except OSError as error:
        raise unavailable(str(path), error) from None
    if reply != b"+":
        raise AgentUnavailable(f"the agent at {path} did not take the standard streams; see its log")
    return token


def connected(path: Path, kind: int) -> socket.socket:
    """Return a blocking socket to a server of root or of this user; wait while the server's queue is full.

    Raises:
        OSError: no server listens there, access is denied, the queue stays full, or another user runs the server.
    """
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        sock.setblocking(False)  # a signal during a blocking connect() would leave the socket unconnected
        give_up = time.monotonic() + _QUEUE_S
        while True:
            try:
                sock.connect(str(path))
                break
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    raise BlockingIOError(f"too many connect to {path} at once; try later") from None
            time.sleep(_QUEUE_PAUSE_S)
        check_server(sock, path)
        sock.setblocking(True)
    except BaseException:
        sock.close()
        raise
    return sock
