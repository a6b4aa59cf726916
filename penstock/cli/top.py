"""``penstock top``: show the state of a host or of the cluster, refreshed until ``q``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from penstock.cli import arguments, render
from penstock.cli.render_cluster import cluster_view
from penstock.cli.render_host import host_view
from penstock.cli.screen import Framed, Window, keys, pressed_keys
from penstock.cli.session import converse
from penstock.client import AgentClient
from penstock.wire.errors import ErrorCode, RpcError

if TYPE_CHECKING:
    from penstock.wire.reservation_api import Reserved

_REFRESH_S = 1.0
_RESERVATIONS_S = 5.0
#: A later answer is reported (seconds).
_SILENT_S = 3.0
_KEYS = " q quit   ↑ ↓ scroll   tab "


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser(
        "top",
        "Show the state of this host, or of the cluster, refreshed every second.",
        "keys: q quits; arrows, page up and down, home and end scroll; tab switches between host and cluster.\n"
        "For programs there is `penstock status --json`.",
    )
    parser.add_argument("--cluster", action="store_true", help="start with the cluster")
    parser.add_argument("--once", action="store_true", help="show it once (the default if the output is no terminal)")
    options = parser.parse_args(argv)
    converse(_show(cluster=options.cluster, once=options.once or not sys.stdout.isatty()))
    return 0


async def _show(*, cluster: bool, once: bool) -> None:
    async with await AgentClient.connect(client="penstock top") as agent:
        source = _Source(agent)
        if once:
            render.console().print(await source.view(cluster=cluster))
        else:
            await _Top(source, Window(cluster=cluster)).run()


class _Source:
    """The views, from this host's agent."""

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent
        self._everybody = True  # ask for all users' reservations, until the master refuses
        self._reservations: list[Reserved] = []
        self._asked_at = -_RESERVATIONS_S

    async def view(self, *, cluster: bool) -> RenderableType:
        """Return the view of the host or of the cluster.

        Raises:
            RpcError: there is no master, or it is unreachable.
            AgentUnavailable: the agent was away for too long.
        """
        if not cluster:
            return host_view(await self._agent.status())
        status = await self._agent.cluster_status()
        if time.monotonic() - self._asked_at >= _RESERVATIONS_S:
            self._reservations = await self._promised()
            self._asked_at = time.monotonic()
        return cluster_view(status, self._reservations)

    async def _promised(self) -> list[Reserved]:
        """Return all reservations for operators, otherwise this user's; none if the master has none."""
        try:
            return await self._agent.reservations(everybody=self._everybody)
        except RpcError as error:
            if error.code is not ErrorCode.REFUSED or not self._everybody:
                return []
        self._everybody = False
        return await self._promised()


class _Top:
    """The terminal while ``penstock top`` runs."""

    def __init__(self, source: _Source, window: Window) -> None:
        self._source = source
        self._window = window
        self._view: RenderableType = Text("asking …")
        self._seen_at = time.monotonic()
        self._look = asyncio.Event()
        self._live = Live(self._framed(), console=render.console(), auto_refresh=False, screen=True)

    async def run(self) -> None:
        """Run until ``q``, Ctrl-C, Ctrl-\\ or SIGTERM; restore the terminal.

        Raises:
            AgentUnavailable: the agent was away for too long.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            loop.add_signal_handler(number, task.cancel)
        following = loop.create_task(self._follow())
        with contextlib.ExitStack() as stack:
            stack.callback(following.cancel)
            if sys.stdin.isatty():
                stack.enter_context(pressed_keys(sys.stdin.fileno()))
                loop.add_reader(sys.stdin.fileno(), self._pressed, task)
                stack.callback(loop.remove_reader, sys.stdin.fileno())
            stack.enter_context(self._live)
            stack.enter_context(contextlib.suppress(asyncio.CancelledError))
            while not following.done():
                self._draw()
                await asyncio.wait([following], timeout=_REFRESH_S)
            following.result()

    async def _follow(self) -> None:
        """Refresh the view periodically, and at once after a change of the tab."""
        while True:
            await self._renew()
            self._draw()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_S):
                    await self._look.wait()
            self._look.clear()

    async def _renew(self) -> None:
        """Update the view; an error of the cluster is shown in its place, as the host's view still works."""
        try:
            self._view = await self._source.view(cluster=self._window.cluster)
        except RpcError as error:
            self._view = render.plain(str(error))
        self._seen_at = time.monotonic()

    def _pressed(self, top: asyncio.Task[None]) -> None:
        before, pressed = self._window.cluster, os.read(sys.stdin.fileno(), 1024)
        for key in keys(pressed or b"q"):  # end of file: the terminal is gone
            if not self._window.press(key):
                top.cancel()
        if self._window.cluster != before:
            self._look.set()
        self._draw()

    def _draw(self) -> None:
        if self._live.is_started:
            self._live.update(self._framed(), refresh=True)

    def _framed(self) -> Framed:
        silent_s = time.monotonic() - self._seen_at
        silence = f"  the agent has not answered for {silent_s:.0f} s" if silent_s > _SILENT_S else ""
        return Framed(self._view, self._window, f"{_KEYS}{'host' if self._window.cluster else 'cluster'} {silence}")
