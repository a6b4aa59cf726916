"""The parent and reaper of every container: a process of its own that outlives the agent (docs/architecture.md).

:mod:`agent.launcher.server` is that process; :class:`agent.launcher.client.Launcher` is the agent's side of it.
"""

from agent.launcher.client import Launcher, LaunchFailed
from agent.launcher.messages import Exited, Running, Start

__all__ = ["Exited", "LaunchFailed", "Launcher", "Running", "Start"]
