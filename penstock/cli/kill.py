"""``penstock kill``: kill containers with all their processes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.errors import note
from penstock.cli.json_output import print_json
from penstock.cli.session import with_agent

if TYPE_CHECKING:
    from penstock.client import AgentClient
    from penstock.model.container import Ended


#: The user is told of containers that do not end after this time (seconds); others end within milliseconds.
_TOLD_AFTER_S = 5.0


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser("kill", "Kill containers with all their processes; returns when they have ended.")
    parser.add_argument("containers", nargs="+", metavar="CONTAINER", help="ids, as `penstock status` shows them")
    parser.add_argument("--json", action="store_true", help="print how each ended, as JSON")
    options = parser.parse_args(argv)
    ended = with_agent("kill", partial(_kill, options.containers), named="container")
    if options.json:
        print_json([{"container": container, "ended": how} for container, how in ended])
    return 0


async def _kill(containers: list[str], agent: AgentClient) -> list[tuple[str, Ended]]:
    """Kill all before waiting for any: one that waits for its disk would wait as long as the others use it."""
    import asyncio

    killed = [await agent.attach(container) for container in containers]
    for running in killed:
        await running.kill()
    ends = [asyncio.ensure_future(running.wait()) for running in killed]
    ended = asyncio.gather(*ends)
    await asyncio.wait([ended], timeout=_TOLD_AFTER_S)
    for running, end in zip(killed, ends, strict=True):
        if not end.done():
            why = "a process waits for its disk, or is outside of the container's cgroup as another user"
            note("kill", f"{running.id} has not ended yet: {why}")
    return list(zip((running.id for running in killed), await ended, strict=True))
