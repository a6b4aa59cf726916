"""PURE. The start of every connection to the agent: the client's hello, the agent's welcome or its refusal.

The faces are :class:`penstock.client.link.Link` for asyncio and :class:`penstock.client.session.Session` without an
event loop. They connect, send the hello and wait.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from penstock.client.errors import AgentUnavailable
from penstock.peer_credentials import UntrustedServerError
from penstock.wire.connection import read_params
from penstock.wire.connection_api import PROTOCOL, Hello
from penstock.wire.errors import ErrorBody, RpcError

#: The longest wait for the welcome (seconds). A working agent answers within milliseconds.
HELLO_S = 10.0
_BACKOFF_S = (0.02, 1.0)  # first and longest pause between two attempts to connect


class Greeting:
    """The greeting of a client, repeated over each new connection to the agent at ``socket``."""

    def __init__(self, socket: str, client: str) -> None:
        self._socket = socket
        self._hello = Hello(protocol=PROTOCOL, client=client)
        self._refusal: RpcError | None = None

    def begin(self) -> Hello:
        """Begin the greeting over a new connection; return the message to send."""
        self._refusal = None
        return self._hello

    def refused(self, params: Any) -> None:
        """Record the notification ``error``, which an agent sends before it closes a connection."""
        self._refusal = RpcError.of(read_params(params, ErrorBody))

    def failure(self, error: Exception) -> AgentUnavailable:
        """Return the error for a connection that could not be made, or was lost before the welcome."""
        return unavailable(self._socket, self._refusal or error)


def unavailable(socket: str, error: Exception) -> AgentUnavailable:
    """Return the error for an agent that cannot be reached, refuses the greeting or does not answer.

    ``error``: RpcError (the agent's reason), TimeoutError (no answer), ConnectionResetError (the agent closed the
    connection) or any OSError of ``connect()``.
    """
    match error:
        case UntrustedServerError():
            return AgentUnavailable(str(error))
        case RpcError():
            return AgentUnavailable(f"the agent at {socket} refuses this client: {error}")
        case TimeoutError():
            return AgentUnavailable(f"the agent at {socket} does not answer; see its log, or restart it")
        case ConnectionResetError():
            return AgentUnavailable(f"the agent at {socket} closed the connection; see its log")
        case OSError(errno=errno.ENOENT | errno.ECONNREFUSED):
            return AgentUnavailable(f"no agent at {socket}; start one with `penstock up`")
        case OSError(errno=errno.EACCES | errno.EPERM):
            remedy = "start an agent of your own with `penstock up`"
            return AgentUnavailable(f"not allowed to connect to {socket}; {remedy}")
    why = getattr(error, "strerror", None) or error
    return AgentUnavailable(f"cannot reach the agent at {socket}: {why}; is `penstock up` running?")


def pauses_s() -> Iterator[float]:
    """Yield the pauses between attempts to connect, in seconds: short ones first, then one second each."""
    pause_s, longest_s = _BACKOFF_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, longest_s)
