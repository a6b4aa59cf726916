"""``penstock kill``: kill containers with all their processes."""

from __future__ import annotations

from penstock.cli import arguments


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser("kill", "Kill containers with all their processes; returns when they have ended.")
    parser.add_argument("containers", nargs="+", metavar="CONTAINER", help="ids, as `penstock status` shows them")
    parser.add_argument("--json", action="store_true", help="print how each ended, as JSON")
    options = parser.parse_args(argv)
    from penstock.cli.session import converse  # imports asyncio, which --help does not need

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
