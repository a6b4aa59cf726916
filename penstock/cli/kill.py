"""``penstock kill``: end containers, with everything that runs in them."""

from __future__ import annotations

from penstock.cli import arguments


def main(argv: list[str]) -> int:
    """The command."""
    parser = arguments.Parser("kill", "End containers with everything that runs in them; returns when they have ended.")
    parser.add_argument("containers", nargs="+", metavar="CONTAINER", help="ids, as `penstock status` shows them")
    parser.add_argument("--json", action="store_true", help="print how each ended, as JSON")
    options = parser.parse_args(argv)
    from penstock.cli.session import converse  # asyncio and all: not for --help

    return converse(_kill(options.containers, as_json=options.json), named="container")


async def _kill(containers: list[str], *, as_json: bool) -> int:
    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock kill") as agent:
        ended = []
        for running in [await agent.attach(container) for container in containers]:
            await running.kill()
            ended.append({"container": running.id, "ended": await running.wait()})
    if as_json:
        import msgspec

        print(msgspec.json.encode(ended).decode())
    return 0
