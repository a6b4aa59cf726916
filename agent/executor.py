"""Containers for real: cgroup and launcher, as the core's instructions say; events come back through ``on_event``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import structlog

from agent.cgroups import Cgroup, CgroupTree
from agent.core import events as e
from agent.core import instructions as i
from agent.launcher import Exited, Launcher, LaunchFailed, Start
from agent.network import EgressLimiter
from agent.stdio import Stdio
from penstock.model import ContainerSpec, Limits

log = structlog.get_logger()
#: A killed cgroup is removable once its dead are reaped: milliseconds, unless the disk hangs.
_REMOVE_WAITS_S = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_NO_CGROUPS = "no writable cgroup v2 tree (run `penstock check`)"


class Executor:
    """One per agent. ``tree`` is None where there is no cgroup v2 tree: then nothing is enforced, and that is said."""

    def __init__(
        self, launcher: Launcher, tree: CgroupTree | None, stdio: Stdio, outputs: Path, network: Egress | None
    ) -> None:
        self.on_event: Callable[[e.Event], object] = lambda event: None
        self._launcher = launcher
        self._tree = tree
        self._stdio = stdio
        self._outputs = outputs
        self._network = network
        self._tasks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ instructions

    def start(self, instruction: i.StartContainer) -> None:
        """See StartContainer."""
        self._spawn(self._start(instruction))

    def kill(self, container: str) -> None:
        """Kill everything in it; the exit comes back as ContainerExited."""
        if self._tree is not None:
            self._tree.get(container).kill()
        else:
            self._spawn(self._launcher.kill_session(container))

    def set_class(self, container: str, limits: Limits, *, opportunistic: bool) -> None:
        """Promotion, in place."""
        if self._tree is not None:
            self._tree.get(container).apply(limits, opportunistic=opportunistic)

    def remove(self, container: str) -> None:
        """Forget it: cgroup, network class, the launcher's memory of it."""
        self._spawn(self._remove(container))

    def exited(self, ended: Exited) -> None:
        """The launcher says that a container's first process ended: what it left behind ends with it."""
        sample = None
        if self._tree is not None:
            cgroup = self._tree.get(ended.container)
            sample = cgroup.sample()
            cgroup.kill()
        else:
            self._spawn(self._launcher.kill_session(ended.container))
        self.on_event(
            e.ContainerExited(
                container=ended.container,
                exit_status=ended.exit_status,
                signal=ended.signal,
                cpu_seconds=sample.cpu_usage_s if sample is not None else ended.cpu_seconds,
                memory_peak_bytes=(sample.memory_peak_bytes if sample is not None else 0) or ended.max_rss_bytes,
                oom_kills=sample.oom_kills if sample is not None else 0,
                ended_at=ended.ended_at,
            )
        )

    async def signal(self, container: str, signum: int) -> None:
        """Signal its first process and that one's process group; one that is gone is no error."""
        await self._launcher.signal(container, signum)

    async def settle(self) -> None:
        """Wait until everything that was begun is done."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------ inside

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a container's task failed", exc_info=error)

    async def _start(self, instruction: i.StartContainer) -> None:
        container, spec = instruction.container, instruction.spec
        with contextlib.ExitStack() as opened:
            try:
                stdio = self._open_stdio(instruction, opened)
                not_enforced, cgroup = self._confine(container, spec)
                procs = None
                if cgroup is not None:
                    procs = cgroup.open_procs()
                    opened.callback(os.close, procs)
                start = Start(container=container, user=instruction.user, argv=spec.argv, env=spec.env, cwd=spec.cwd)
                pid = await self._launcher.start(start, procs_fd=procs, stdio=stdio)
            except (LaunchFailed, OSError) as error:
                self.on_event(e.ContainerNotStarted(container, str(error)))
                return
        self.on_event(e.ContainerStarted(container, pid, not_enforced, time.time()))

    def _confine(self, container: str, spec: ContainerSpec) -> tuple[dict[str, str], Cgroup | None]:
        """The cgroup with its limits, made before anything runs in it; and what could not be enforced."""
        limits = spec.limits
        asked = [name for name in limits.__struct_fields__ if getattr(limits, name) is not None]
        if self._tree is None:
            return dict.fromkeys(asked, _NO_CGROUPS), None
        cgroup = self._tree.create(container)
        not_enforced = cgroup.apply(limits, opportunistic=spec.opportunistic)
        if limits.network_egress_bytes_per_s is not None:
            not_enforced.pop("network_egress_bytes_per_s", None)
            not_enforced.update(self._limit_egress(container, cgroup, limits.network_egress_bytes_per_s))
        return not_enforced, cgroup

    def _limit_egress(self, container: str, cgroup: Cgroup, rate_bytes_per_s: int) -> dict[str, str]:
        if self._network is None:
            return {"network_egress_bytes_per_s": "egress limits are not available here (run `penstock check`)"}
        return self._network.attach(container, cgroup.path, rate_bytes_per_s)

    def _open_stdio(self, instruction: i.StartContainer, opened: contextlib.ExitStack) -> tuple[int, int, int]:
        """The descriptors that were passed for it, or files of our own."""
        if instruction.spec.stdio:
            passed = self._stdio.take(instruction.spec.stdio, instruction.user)
            for descriptor in passed:
                opened.callback(os.close, descriptor)
            return passed
        directory = self._outputs / instruction.container
        directory.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, nothing)
        files = [os.open(directory / name, flags, 0o600) for name in ("stdout", "stderr")]
        for descriptor in files:
            opened.callback(os.close, descriptor)
        return nothing, files[0], files[1]

    async def _remove(self, container: str) -> None:
        if self._network is not None:
            self._network.detach(container)
        if self._tree is not None:
            cgroup = self._tree.get(container)
            for wait_s in _REMOVE_WAITS_S:
                await asyncio.sleep(wait_s)
                if cgroup.remove():
                    break
            else:
                log.warning("cgroup still populated, left behind", container=container, path=str(cgroup.path))
        await self._launcher.acknowledge(container)


class Egress:
    """Gives each limited container a class of its own."""

    def __init__(self, limiter: EgressLimiter) -> None:
        self._limiter = limiter
        self._slots: dict[str, tuple[int, Path]] = {}

    def attach(self, container: str, cgroup: Path, rate_bytes_per_s: int) -> dict[str, str]:
        """Limit what the container sends; returns what could not be done."""
        taken = {slot for slot, _ in self._slots.values()}
        slot = next(n for n in range(1, 65000) if n not in taken)
        self._slots[container] = (slot, cgroup)
        failed = self._limiter.attach(slot, cgroup, rate_bytes_per_s)
        return {f"network_egress_bytes_per_s on {link}": why for link, why in failed.items()}

    def detach(self, container: str) -> None:
        """It is gone."""
        taken = self._slots.pop(container, None)
        if taken is not None:
            self._limiter.detach(*taken)

    def take_back(self, limited: dict[str, tuple[Path, int]]) -> None:
        """After a restart: container → (cgroup, rate). Classes that nobody owns go."""
        for slot, (container, (cgroup, _)) in enumerate(sorted(limited.items()), start=1):
            self._slots[container] = (slot, cgroup)
        self._limiter.reconcile({self._slots[name][0]: where for name, where in limited.items()})
