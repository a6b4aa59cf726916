"""Copy the output of a container part by part, while it runs."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.errors import note
from penstock.model.units import counted

if TYPE_CHECKING:
    from penstock.client import Container
    from penstock.model.container import Ended

#: Standard output's descriptor (stdout(3)).
_STDOUT_FILENO = 1


@dataclass(eq=False, slots=True)
class CopiedOutput:
    """A stream (``stdout`` or ``stderr``) of a container, copied up to ``offset``. ``ended``: the container's end."""

    running: Container
    ended: asyncio.Future[Ended]
    stream: str
    write: Callable[[bytes], object]
    offset: int = 0
    complete: bool = False

    async def copy(self) -> None:
        """Copy the output that was written since the last call, unchanged.

        Raises:
            RpcError: the agent has dropped the container.
        """
        over = self.ended.done()  # the following reads are then complete
        while (part := await self.running.read(self.stream, self.offset)).data:
            if part.offset > self.offset:
                note("logs", f"{counted(part.offset - self.offset, 'byte')} no longer kept")
            self.write(part.data)
            self.offset = part.offset + len(part.data)
        self.complete = over


def reader_is_gone() -> bool:
    """Return whether no process reads standard output any more, as after ``| grep -m1``: without output no write
    would fail, and the command would last as long as the container.
    """
    output = select.poll()
    output.register(_STDOUT_FILENO, 0)  # errors are reported without being asked for (poll(2))
    return bool(output.poll(0))
