"""The parent and reaper of every container: a separate process that outlives the agent (docs/architecture.md).

:mod:`agent.launcher.server` is that process; :class:`agent.launcher.client.Launcher` is the agent's side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.launcher.messages import Adopt, Exited, Running, Start

if TYPE_CHECKING:
    from agent.launcher.client import Launcher, LauncherGone, LaunchFailed

__all__ = ["Adopt", "Exited", "LaunchFailed", "Launcher", "LauncherGone", "Running", "Start"]


def __getattr__(name: str) -> object:
    """Import the client on demand: only the agent needs it, and asyncio would double every forked process."""
    if name in {"Launcher", "LauncherGone", "LaunchFailed"}:
        from agent.launcher import client

        return getattr(client, name)
    raise AttributeError(name)
