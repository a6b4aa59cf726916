"""``penstock undrain``: nodes that were drained take work again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.statuses import Status

if TYPE_CHECKING:
    from penstock.wire.cluster_api import Drains


def main(argv: list[str]) -> int:
    """The command."""
    parser = arguments.Parser("undrain", "Have nodes that were drained take work again.")
    parser.add_argument("nodes", metavar="NODE", nargs="*", help="as the master calls it; without any this host's own")
    parser.add_argument("--json", action="store_true", help="print the nodes as JSON")
    options = parser.parse_args(argv)
    from penstock.cli.drain import show
    from penstock.cli.session import converse  # asyncio and all: not for --help

    show(converse(_undrain(options.nodes), named="nodes"), as_json=options.json)
    return Status.DONE


async def _undrain(nodes: list[str]) -> Drains:
    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock undrain") as agent:
        return await agent.nodes.undrain(nodes)
