"""Requests to the agent without an event loop: the import of asyncio takes longer than all else in most commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from penstock.client.errors import AgentUnavailable
from penstock.client.requests import Requests
from penstock.client.session import Session
from penstock.wire.method import Method, P, R

T = TypeVar("T")
#: How long the agent may be away, as for an :class:`~penstock.client.AgentClient`.
_PATIENCE_S = 30.0


class BlockingRequests(Requests):
    """Requests over a session. Their coroutines never suspend, so that nothing has to run them but :func:`answered`."""

    def __init__(self, session: Session) -> None:
        super().__init__(self)
        self._session = session
        self.welcome = session.welcome

    async def ask(self, method: Method[P, R], params: P) -> R:
        """See :class:`penstock.client.requests.Asks`, like the next method."""
        return self._session.call(method, lambda: params)

    async def ask_once(self, method: Method[P, R], params: P, lost: str) -> R:
        """Raise AgentUnavailable, with the message ``lost``, if the connection was lost during this call."""
        try:
            return self._session.call_once(method, lambda: params)
        except ConnectionResetError:
            raise AgentUnavailable(lost) from None

    async def pause(self, pause_s: float) -> None:
        """Let so many seconds pass, between one look and the next."""
        time.sleep(pause_s)  # noqa: ASYNC251 - there is no event loop


def asked(socket: Path, client: str, work: Callable[[BlockingRequests], Coroutine[Any, Any, T]]) -> T:
    """Connect to the agent and return what ``work`` returns, which awaits requests and pauses, and nothing else.

    Raises:
        AgentUnavailable: there is no usable agent, or it was away for too long.
        RpcError: the agent's answer to a request.
    """
    with Session.connect(socket, client, patience_s=_PATIENCE_S) as session:
        return answered(work(BlockingRequests(session)))


def answered(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits requests and pauses of :class:`BlockingRequests`, and nothing else."""
    try:
        work.send(None)
    except StopIteration as over:
        result: T = over.value
        return result
    work.close()
    raise RuntimeError("it awaits something that is no request; use an AgentClient")
