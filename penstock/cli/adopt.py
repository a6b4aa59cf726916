"""``penstock adopt``: a process that runs already, as a container on this host."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from penstock.cli import arguments
from penstock.cli.errors import CommandError
from penstock.cli.limits import add_class, add_limits, specification, tell
from penstock.cli.statuses import Status
from penstock.model.container import ContainerSpec


def main(argv: list[str]) -> int:
    """The command."""
    options = _parse(argv)
    spec = specification(options, _command_of(options.pid), detach=True)
    from penstock.cli.session import converse  # asyncio and all: not for --help

    return converse(_adopt(options.pid, spec, tree=options.tree, as_json=options.json))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.Parser(
        "adopt",
        "Take a process of yours that runs already into a container on this host; print the container's id.",
        "Memory that it uses already stays charged where it was, and what it has started already stays outside\n"
        "(but for --tree); so what can be started by `penstock run` should be.",
    )
    parser.add_argument("pid", type=arguments.count, metavar="PID", help="which process")
    parser.add_argument("--tree", action="store_true", help="its descendants, too")
    parser.add_argument("--json", action="store_true", help="print the id, and what is not enforced, as JSON")
    add_limits(parser)
    add_class(parser)
    return parser.parse_args(argv)


def _command_of(pid: int) -> tuple[str, ...]:
    """To be shown.

    Raises:
        CommandError: there is no such process.
    """
    directory = Path(f"/proc/{pid}")
    try:
        command = (directory / "cmdline").read_bytes().removesuffix(b"\0") or (directory / "comm").read_bytes().strip()
    except OSError:
        raise CommandError(f"there is no process {pid}", status=Status.UNKNOWN) from None
    return tuple(map(os.fsdecode, command.split(b"\0")))


async def _adopt(pid: int, spec: ContainerSpec, *, tree: bool, as_json: bool) -> int:
    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock adopt") as agent:
        container = await agent.adopt(pid, spec, tree=tree)
    tell("adopt", container.id, container.not_enforced, as_json=as_json)
    return 0
