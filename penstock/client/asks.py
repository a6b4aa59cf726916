"""What classes that only send requests need of a connection."""

from __future__ import annotations

from typing import Protocol

from penstock.wire.method import Method, P, R


class Asks(Protocol):
    """A connection that carries declared methods."""

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Call until an answer comes."""

    async def ask_once(self, method: Method[P, R], params: P, lost: str) -> R:
        """Call once, as a repeated request could be executed twice.

        Raises:
            AgentUnavailable: the connection was lost during this call; ``lost`` is the message.
        """

    async def pause(self, pause_s: float) -> None:
        """Let so many seconds pass."""
