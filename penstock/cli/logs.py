"""``penstock logs``: print the output of a container of this host, or of a job's manager, and optionally follow it."""

from __future__ import annotations

import asyncio
import select
import sys
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.errors import CommandError, note
from penstock.cli.exit_statuses import Status
from penstock.cli.session import with_agent
from penstock.model.units import counted
from penstock.wire.errors import RpcError

if TYPE_CHECKING:
    from penstock.client import AgentClient, Container
    from penstock.model.container import Ended

#: Standard output's descriptor (stdout(3)).
_STDOUT_FILENO = 1
#: The interval of reads from a running container (seconds).
_LOOK_S = 0.25
#: The most containers that an error names.
_NAMED = 10
_KEPT = """The agent keeps the newest 8 to 16 MiB of each stream (key output_max_bytes) until it drops the
container. Output that went directly to your terminal or file, as with `penstock run`, is not kept."""


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser("logs", "Print the output of a container of this host.", _KEPT)
    parser.add_argument(
        "container",
        metavar="CONTAINER|JOB",
        help="a container's id, as `penstock status` shows it; or a job's, if it was submitted here with --detach",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the container has ended")
    parser.add_argument("--stderr", action="store_true", help="print standard error instead of standard output")
    options = parser.parse_args(argv)

    async def copy(agent: AgentClient) -> None:
        running = await agent.attach(await _container_of(agent, options.container))
        ended = asyncio.ensure_future(running.wait())
        try:
            await _copy(running, "stderr" if options.stderr else "stdout", ended if options.follow else None)
        finally:
            ended.cancel()

    with_agent("logs", copy, named="container")
    return 0


async def _container_of(agent: AgentClient, name: str) -> str:
    """Return the container's id; for a detached job's id, the container of its manager, if this agent has it."""
    from penstock.cli.detach import manager_name

    containers = (await agent.status()).get("containers", [])
    managers = [one for one in containers if one.get("name") == manager_name(name)]
    managers.sort(key=lambda one: one.get("user") == agent.welcome.user)  # any user may choose this name
    if managers:
        return str(managers[-1]["container"])
    if all(one.get("container") != name for one in containers):
        await _refuse_job(agent, name, [str(one["container"]) for one in containers if one.get("job") == name])
    return name


async def _refuse_job(agent: AgentClient, name: str, tasks: list[str]) -> None:
    """Refuse a job whose results are not here; ``tasks`` are the containers of its tasks on this host.

    Raises:
        CommandError: the master knows a job of this id.
    """
    try:
        jobs = (await agent.jobs.find([name])).jobs
    except RpcError:  # without a master the answer is the agent's: it has no such container
        return
    for job in jobs:
        if job.origin != agent.welcome.node:
            raise CommandError(f"job {name!r} was submitted on {job.origin}; ask there", status=Status.UNKNOWN)
        kept = f"; its tasks' output here: {', '.join(tasks[:_NAMED])}" if tasks else ""
        why = f"no results of job {name!r} are kept: it was not submitted with --detach, or ended too long ago"
        raise CommandError(why + kept, status=Status.UNKNOWN)


async def _copy(running: Container, stream: str, until: asyncio.Future[Ended] | None) -> None:
    """Copy the output unchanged to standard output; with ``until``, continue until that container has ended."""
    offset = 0
    while True:
        over = until is None or until.done()  # the following read is then complete
        part = await running.read(stream, offset)
        if part.offset > offset:
            note("logs", f"{counted(part.offset - offset, 'byte')} no longer kept")
        sys.stdout.buffer.write(part.data)
        sys.stdout.buffer.flush()
        offset = part.offset + len(part.data)
        if part.data:
            continue
        if over:
            return
        assert until is not None
        if _reader_is_gone():
            raise BrokenPipeError
        await asyncio.wait([until], timeout=_LOOK_S)


def _reader_is_gone() -> bool:
    """Return whether no process reads standard output any more, as after ``| grep -m1``: without output no write
    would fail, and the command would last as long as the container.
    """
    output = select.poll()
    output.register(_STDOUT_FILENO, 0)  # errors are reported without being asked for (poll(2))
    return bool(output.poll(0))
