"""``penstock status``: show the present state of a host or of the cluster, for people or as JSON."""

from __future__ import annotations

import json

from penstock.cli import arguments, lean_imports
from penstock.cli.session import asked


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser("status", "Show the present state of this host, or of the cluster.")
    parser.add_argument("--cluster", action="store_true", help="the cluster, as known to this agent's master")
    parser.add_argument("--json", action="store_true", help="the whole document, as GET /status returns it")
    options = parser.parse_args(argv)
    document = asked("status", lambda agent: agent.cluster_status() if options.cluster else agent.status())
    if options.json:
        print(json.dumps(document, indent=2))
        return 0
    lean_imports.load("rich")
    from penstock.cli import render
    from penstock.cli.render_cluster import cluster_view
    from penstock.cli.render_host import host_view

    render.console().print((cluster_view if options.cluster else host_view)(document))
    return 0
