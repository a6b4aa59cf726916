"""``penstock undrain``: allow work on drained nodes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.exit_statuses import Status

if TYPE_CHECKING:
    from penstock.wire.cluster_api import Drains


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser("undrain", "Allow work on drained nodes again.")
    parser.add_argument("nodes", metavar="NODE", nargs="*", help="the master's name of a node; default: this host")
    parser.add_argument("--json", action="store_true", help="print the nodes as JSON")
    options = parser.parse_args(argv)
    from penstock.cli.drain import show
    from penstock.cli.session import converse  # imports asyncio, which --help does not need

    show(converse(_undrain(options.nodes), named="nodes"), as_json=options.json)
    return Status.DONE


async def _undrain(nodes: list[str]) -> Drains:
    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock undrain") as agent:
        return await agent.nodes.undrain(nodes)
