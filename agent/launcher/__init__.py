"""The parent and reaper of every container: a process of its own that outlives the agent (docs/architecture.md).

:mod:`agent.launcher.server` is that process; :class:`agent.launcher.client.Launcher` is the agent's side of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.launcher.messages import Adopt, Exited, Running, Start

if TYPE_CHECKING:
    from agent.launcher.client import Launcher, LauncherGone, LaunchFailed

__all__ = ["Adopt", "Exited", "LaunchFailed", "Launcher", "LauncherGone", "Running", "Start"]


def __getattr__(name: str) -> object:
    """The client is for the agent: its asyncio would double the process that every start forks."""
    if name in {"Launcher", "LauncherGone", "LaunchFailed"}:
        from agent.launcher import client

        return getattr(client, name)
    raise AttributeError(name)
