"""``penstock top``: the status, refreshed until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from rich.live import Live

from penstock.cli import arguments, render
from penstock.cli.session import converse
from penstock.client import AgentClient

_REFRESH_S = 1.0


def main(argv: list[str]) -> int:
    """The command; returns its exit status."""
    parser = arguments.Parser("top", "What this host is doing, refreshed every second until Ctrl-C.")
    parser.add_argument("--once", action="store_true", help="show it once (as always when the output is no terminal)")
    options = parser.parse_args(argv)
    converse(_show(once=options.once or not sys.stdout.isatty()))
    return 0


async def _show(*, once: bool) -> None:
    async with await AgentClient.connect(client="penstock top") as agent:
        console = render.console()
        if once:
            console.print(render.status_view(await agent.status()))
            return
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        first = render.status_view(await agent.status())
        with (
            contextlib.suppress(asyncio.CancelledError),
            Live(first, console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live,
        ):
            while True:
                live.update(render.status_view(await agent.status()), refresh=True)
                await asyncio.sleep(_REFRESH_S)
