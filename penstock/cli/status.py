"""``penstock status``: the agent's status document, for people or as JSON."""

from __future__ import annotations

from typing import Any

from penstock.cli import arguments
from penstock.cli.session import converse
from penstock.client import AgentClient


def main(argv: list[str]) -> int:
    """The command; returns its exit status."""
    parser = arguments.Parser("status", "What this host is doing now.")
    parser.add_argument("--json", action="store_true", help="the whole document, as GET /status gives it")
    options = parser.parse_args(argv)
    document = converse(_fetch())
    if options.json:
        import json

        print(json.dumps(document, indent=2))
    else:
        from penstock.cli import render

        render.console().print(render.status_view(document))
    return 0


async def _fetch() -> dict[str, Any]:
    async with await AgentClient.connect(client="penstock status") as agent:
        return await agent.status()
