"""``penstock resize``: change the limits of a running container."""

from __future__ import annotations

from penstock.cli import arguments
from penstock.cli.errors import usage_error
from penstock.cli.limits import Value, add_limits, changes, warn


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser(
        "resize",
        "Change limits of a running container; limits that are not named stay. Returns when the kernel has them.",
        "Memory shrinks only as far as no process is killed by it.",
    )
    parser.add_argument("container", metavar="CONTAINER", help="its id, as `penstock status` shows it")
    parser.add_argument("--json", action="store_true", help="print all limits, and the unenforced ones, as JSON")
    add_limits(parser, removable=True)
    options = parser.parse_args(argv)
    limits = changes(options)
    if not limits:
        raise usage_error("no limit given; write for example `penstock resize CONTAINER --cpu 2 --memory none`")
    from penstock.cli.session import converse  # imports asyncio, which --help does not need

    return converse(_resize(options.container, limits, strict=options.strict, as_json=options.json), named="container")


async def _resize(container: str, limits: dict[str, Value], *, strict: bool, as_json: bool) -> int:
    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock resize") as agent:
        running = await agent.attach(container)
        now = await running.resize(strict=strict, **limits)
    if as_json:
        import msgspec

        said = {"container": container, "limits": now, "not_enforced": running.not_enforced}
        print(msgspec.json.encode(said).decode())
    else:
        warn("resize", running.not_enforced)
    return 0
