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
    """A stream (``stdout`` or ``stderr``) of a container, copied up to ``offset``. ``ended``: the container's end.
    ``last_lines``: of the output before the first call, only so many are copied; None: all."""

    running: Container
    ended: asyncio.Future[Ended]
    stream: str
    write: Callable[[bytes], object]
    last_lines: int | None = None
    offset: int = 0
    complete: bool = False

    async def copy(self) -> None:
        """Copy the output that was written since the last call, unchanged.

        Raises:
            RpcError: the agent has dropped the container.
        """
        over = self.ended.done()  # the following reads are then complete
        before = bytearray()
        end: int | None = None
        while end is None or self.offset < end:
            part = await self.running.read(self.stream, self.offset)
            if not part.data:
                break
            end = part.size if end is None else end  # a command may write faster than this one reads
            missing, self.offset = part.offset - self.offset, part.offset + len(part.data)
            if self.last_lines is not None:
                before += part.data
                continue
            if missing:
                note("logs", f"{counted(missing, 'byte')} no longer kept")
            self.write(part.data)
        if self.last_lines is not None and (last := _last(bytes(before), self.last_lines)):
            self.write(last)
        self.last_lines = None
        self.complete = over


def _last(output: bytes, lines: int) -> bytes:
    begin = len(output) - output.endswith(b"\n")
    for _ in range(lines):
        begin = output.rfind(b"\n", 0, begin)
        if begin < 0:
            return output
    return output[begin + 1 :]


def reader_is_gone() -> bool:
    """Return whether no process reads standard output any more, as after ``| grep -m1``: without output no write
    would fail, and the command would last as long as the container.
    """
    output = select.poll()
    output.register(_STDOUT_FILENO, 0)  # errors are reported without being asked for (poll(2))
    return bool(output.poll(0))
