"""Actions on containers' cgroups that wait while no descriptor is free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from agent.cgroups.filesystem import PASSING

log = structlog.get_logger()
T = TypeVar("T")
#: An action that failed for lack of descriptors is tried again after this time (seconds).
AGAIN_S = 0.5


class CgroupRetries:
    """The actions that could not be carried out yet: the core has decided on them, and decides on each only once."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def act(
        self, kind: str, container: str, action: Callable[[], T], then: Callable[[T], object] = lambda done: None
    ) -> None:
        """Carry out an action now, or as soon as a descriptor is free, unless a later one of the same ``kind``
        replaces it; pass its result to ``then``.

        Raises:
            OSError: it failed for another reason than a lack of descriptors.
        """
        if (earlier := self._waiting.pop((kind, container), None)) is not None:
            earlier.cancel()
        try:
            done = action()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            log.warning(f"the {kind} of a container waits for descriptors", container=container, why=str(error))
            later = asyncio.get_running_loop().call_later(AGAIN_S, self.act, kind, container, action, then)
            self._waiting[kind, container] = later
            return
        then(done)

    def drop(self, container: str) -> None:
        """Drop the actions that wait: the container has ended."""
        for key in [key for key in self._waiting if key[1] == container]:
            self._waiting.pop(key).cancel()
