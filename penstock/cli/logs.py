"""``penstock logs``: what a container of this host has written, and what it goes on to write; or a job's manager."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from penstock.cli import arguments

if TYPE_CHECKING:
    from penstock.client import AgentClient, Container
    from penstock.model.container import Ended

#: How often a container that runs is asked for more (seconds).
_LOOK_S = 0.25
_KEPT = """The agent keeps the newest 8 to 16 MiB of each stream (its key output_max_bytes), as long as it remembers
the container. What went straight to a terminal or file of yours, as with `penstock run`, is not kept."""


def main(argv: list[str]) -> int:
    """The command; its exit status."""
    parser = arguments.Parser("logs", "Print what a container of this host has written.", _KEPT)
    parser.add_argument(
        "container",
        metavar="CONTAINER|JOB",
        help="its id, as `penstock status` shows it; a job's: what came of it, if it was submitted here with --detach",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    parser.add_argument("--stderr", action="store_true", help="what it wrote to standard error")
    options = parser.parse_args(argv)
    from penstock.cli.session import converse  # asyncio and all: not for --help

    work = _print(options.container, "stderr" if options.stderr else "stdout", follow=options.follow)
    return converse(work, named="container")


async def _print(container: str, stream: str, *, follow: bool) -> int:
    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock logs") as agent:
        running = await agent.attach(await _container_of(agent, container))
        ended = asyncio.ensure_future(running.wait())
        try:
            await _copy(running, stream, ended if follow else None)
        finally:
            ended.cancel()
    return 0


async def _container_of(agent: AgentClient, name: str) -> str:
    """A container's id; for that of a detached job the container of its manager, if this host's agent has it."""
    from penstock.cli.detach import manager_name

    containers = (await agent.status()).get("containers", [])
    managers = [one for one in containers if one.get("name") == manager_name(name)]
    managers.sort(key=lambda one: one.get("user") == agent.welcome.user)  # anybody may call his own so
    return str(managers[-1]["container"]) if managers else name


async def _copy(running: Container, stream: str, until: asyncio.Future[Ended] | None) -> None:
    """To standard output, as it is; what comes until the container has ended, where there is an ``until``."""
    offset = 0
    while True:
        over = until is None or until.done()  # what is read after that is all
        part = await running.read(stream, offset)
        if part.offset > offset:
            print(f"penstock logs: {part.offset - offset} bytes are not kept any more", file=sys.stderr)
        sys.stdout.buffer.write(part.data)
        sys.stdout.buffer.flush()
        offset = part.offset + len(part.data)
        if part.data:
            continue
        if over:
            return
        assert until is not None
        await asyncio.wait([until], timeout=_LOOK_S)
