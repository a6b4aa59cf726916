"""``penstock undrain``: allow work on drained nodes again."""

from __future__ import annotations

from penstock.cli import arguments
from penstock.cli.exit_statuses import Status
from penstock.cli.session import with_agent


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser("undrain", "Allow work on drained nodes again.")
    parser.add_argument("nodes", metavar="NODE", nargs="*", help="the master's name of a node; default: this host")
    parser.add_argument("--json", action="store_true", help="print the nodes as JSON")
    options = parser.parse_args(argv)
    from penstock.cli.drain import show  # imports asyncio, which --help does not need

    show(with_agent("undrain", lambda agent: agent.nodes.undrain(options.nodes), named="nodes"), as_json=options.json)
    return Status.DONE
