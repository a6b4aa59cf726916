"""What the system refuses to a daemon at the moment (descriptors, disk space, a port), which goes on without."""

from __future__ import annotations

import time
from collections.abc import Awaitable

import structlog
from msgspec import structs

from penstock.documents import Degraded

log = structlog.get_logger()


class Troubles:
    """Failures of the system that last; each is logged when it begins and when it ends."""

    def __init__(self) -> None:
        self._rows: dict[str, Degraded] = {}

    async def survive(self, what: str, work: Awaitable[None]) -> None:
        """Wait for the work. An error of the operating system is kept as a trouble, and success ends it."""
        try:
            await work
        except OSError as error:
            self.begin(what, error)
        else:
            self.end(what)

    def begin(self, what: str, error: OSError) -> None:
        """It failed, for the first time or again."""
        known = self._rows.get(what)
        if known is None:
            known = Degraded(what=what, why="", since=time.time(), times=0)
            log.error("degraded", what=what, why=str(error))
        self._rows[what] = structs.replace(known, why=str(error), times=known.times + 1)

    def end(self, what: str) -> None:
        """It works."""
        known = self._rows.pop(what, None)
        if known is not None:
            log.info("no longer degraded", what=what, times=known.times)

    def rows(self) -> list[Degraded]:
        """For the status."""
        return list(self._rows.values())
