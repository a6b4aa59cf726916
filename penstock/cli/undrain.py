"""``penstock undrain``: allow work on drained nodes again."""

from __future__ import annotations

from penstock.cli import arguments
from penstock.cli.drain import show
from penstock.cli.exit_statuses import Status
from penstock.cli.session import asked


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser("undrain", "Allow work on drained nodes again.")
    parser.add_argument("nodes", metavar="NODE", nargs="*", help="the master's name of a node; default: this host")
    parser.add_argument("--json", action="store_true", help="print the nodes as JSON")
    options = parser.parse_args(argv)
    show(asked("undrain", lambda agent: agent.nodes.undrain(options.nodes), named="nodes"), as_json=options.json)
    return Status.DONE
