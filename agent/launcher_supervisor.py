"""The agent's launcher: found or started, recorded over restarts of the agent, replaced when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from agent import cgroup_root
from agent.config import AgentConfig
from agent.journal import LAUNCHER, Journal, LastLauncher
from agent.launcher import Exited, Launcher, LaunchFailed
from penstock.trouble import Troubles

log = structlog.get_logger()
#: In the journal while no launcher has been asked for the containers recorded as starting.
_NO_LAUNCHER = "none"
#: Delay before a launcher that could not be started is tried again.
_AGAIN_S = 0.2


class LauncherSupervisor:
    """One per agent. ``launcher`` is None until :meth:`connect`, and while a dead one is replaced."""

    def __init__(
        self, config: AgentConfig, journal: Journal, instance: str, troubles: Troubles,
        on_exit: Callable[[Exited], None], on_lost: Callable[[], None],
    ) -> None:  # fmt: skip
        self._config = config
        self._journal = journal
        self._instance = instance
        self._troubles = troubles
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._connecting = False
        self._replacing: asyncio.Task[None] | None = None
        self._root: Path | None = None
        self._last = next(iter(journal.read(LAUNCHER, LastLauncher)), None)
        self.launcher: Launcher | None = None

    async def connect(self) -> Launcher:
        """Connect to a launcher; start one if the configuration allows it and none answers.

        Raises:
            OSError: no launcher answers, or one cannot be started.
        """
        root = self._choose_root()
        if root is not None:
            cgroup_root.vacate(root)
        self.launcher = await self._connect(root)
        return self.launcher

    def same_as_before(self, launcher: Launcher) -> bool:
        """Return whether an earlier agent would have asked this launcher for its containers recorded as starting."""
        return self._last is not None and self._last.instance in {launcher.instance, _NO_LAUNCHER} - {""}

    def settled(self, launcher: Launcher | None, root: Path | None) -> None:
        """Journal the launcher that is asked from now on for containers recorded as starting, and its tree.

        Call this once the starts requested from a former launcher are settled: they would be started again.
        """
        self._root = root
        instance = launcher.instance if launcher is not None else _NO_LAUNCHER
        self._journal.write(LAUNCHER, LAUNCHER, LastLauncher(instance=instance, cgroup_root=str(root or "")))

    def replace(self, use: Callable[[Launcher], None]) -> None:
        """Start another launcher for the same cgroup tree; ``use`` is called with it."""
        self._replacing = asyncio.get_running_loop().create_task(self._replace(use))

    async def stop_replacing(self) -> None:
        """Stop looking for another launcher."""
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.wait([self._replacing])

    async def release(self, *, unused: bool) -> None:
        """End a launcher that the agent started, if nothing runs (``unused``)."""
        if self.launcher is None:
            self.settled(None, self._root)
        elif self._config.spawn_launcher and unused:
            with contextlib.suppress(LaunchFailed):
                await self.launcher.shutdown()

    async def release_idle(self) -> None:
        """End an idle launcher, because the start of the agent failed after starting it."""
        if self.launcher is not None and self._config.spawn_launcher:
            with contextlib.suppress(LaunchFailed):
                if not await self.launcher.running():
                    await self.launcher.shutdown()

    async def close(self) -> None:
        """Disconnect; the launcher continues."""
        if self.launcher is not None:
            await self.launcher.close()

    # ------------------------------------------------------------ inside

    async def _replace(self, use: Callable[[Launcher], None]) -> None:
        """Try until a launcher answers. By now the requests to the former one are settled."""
        self.settled(None, self._root)
        while self.launcher is None:
            try:
                launcher = await self._connect(self._root)
            except OSError as error:
                self._troubles.begin("launcher", error)
                await asyncio.sleep(_AGAIN_S)
                continue
            if not launcher.gone:
                self._troubles.end("launcher")
                self.settled(launcher, self._root)
                self.launcher = launcher
                use(launcher)
                log.info("another launcher is connected")

    async def _connect(self, root: Path | None) -> Launcher:
        self._connecting = True
        try:
            return await Launcher.connect(
                self._config.runtime(), self._on_exit, on_lost=self._lost, spawn=self._config.spawn_launcher,
                cgroup_root=root, in_scope=self._config.cgroup_root == cgroup_root.SCOPE,
                leave_after_s=self._config.launcher_leave_after_s,
            )  # fmt: skip
        finally:
            self._connecting = False

    def _lost(self) -> None:
        if not self._connecting:  # otherwise connect() fails
            self.launcher = None
            self._on_lost()

    def _choose_root(self) -> Path | None:
        """Return the tree's root; an earlier launcher's is used again: its containers may still run there."""
        if self._config.cgroup_root not in (cgroup_root.AUTO, cgroup_root.SCOPE):
            return Path(self._config.cgroup_root)
        if self._last is not None and self._last.cgroup_root and self._config.spawn_launcher:
            root = Path(self._last.cgroup_root)
            ours = not cgroup_root.is_delegated(root) or any(root.glob("containers/*/"))
            if root.is_dir() and os.access(root, os.W_OK) and ours:
                return root
        return None if self._config.cgroup_root == cgroup_root.SCOPE else cgroup_root.choose_root(self._instance)
