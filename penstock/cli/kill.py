"""``penstock kill``: end containers, with everything that runs in them."""

from __future__ import annotations

from penstock.cli import arguments
from penstock.cli.errors import usage_error


def main(argv: list[str]) -> int:
    """The command."""
    parser = arguments.Parser("kill", "End containers with everything that runs in them; returns when they have ended.")
    parser.add_argument("containers", nargs="*", metavar="CONTAINER", help="ids, as `penstock status` shows them")
    options = parser.parse_args(argv)
    if not options.containers:
        raise usage_error("no container given; `penstock status` shows their ids")
    from penstock.cli.session import converse  # asyncio and all: not for --help

    return converse(_kill(options.containers))


async def _kill(containers: list[str]) -> int:
    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock kill") as agent:
        for running in [await agent.attach(container) for container in containers]:
            await running.kill()
            await running.wait()
    return 0
