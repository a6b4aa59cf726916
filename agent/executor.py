"""Carries out the core's instructions on containers, by cgroup and launcher; events return through ``on_event``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import structlog

from agent.cgroup_retries import CgroupRetries
from agent.cgroups import Cgroup, CgroupTree, Total
from agent.core import events as e
from agent.core import instructions as i
from agent.core.confinement import Confinement, confine, worth_saying
from agent.fault_injection import Point, reach
from agent.launcher import Exited, Launcher, LauncherGone, LaunchFailed, Start
from agent.launcher.oom import set_oom_score_adj
from agent.limit_enforcer import LimitEnforcer
from agent.nice import NiceValues, host_processes, renice_tree
from agent.output import open_output
from agent.removals import Removals
from agent.stdio import Stdio

log = structlog.get_logger()
P = ParamSpec("P")
T = TypeVar("T")
#: oom_score_adj of opportunistic work: if the host itself runs out of memory, it is killed first.
_FIRST_TO_GO = 1000


def _in_a_task(
    work: Callable[Concatenate[Executor, P], Coroutine[object, object, None]],
) -> Callable[Concatenate[Executor, P], None]:
    """Let a method run in a task of the executor's: its caller, which carries out instructions, does not wait.

    :meth:`Executor.settle` waits for the task.
    """

    @wraps(work)
    def begin(self: Executor, /, *args: P.args, **kwargs: P.kwargs) -> None:
        task = self._loop.create_task(work(self, *args, **kwargs))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    return begin


class Executor:
    """One per agent. ``tree`` is None without a cgroup v2 tree: then nothing is enforced, which is reported."""

    def __init__(
        self, launcher: Launcher, tree: CgroupTree | None, limit_enforcer: LimitEnforcer, stdio: Stdio, outputs: Path
    ) -> None:
        self.on_event: Callable[[e.Event], object] = lambda event: None
        self._launcher: Launcher | None = launcher
        self._launcher_changed = asyncio.Event()
        self._orphans: set[str] = set()
        self._tree = tree
        self._limit_enforcer = limit_enforcer
        self.stdio = stdio
        self._outputs = outputs
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.removals = Removals(tree, limit_enforcer)
        self._retries = CgroupRetries()
        self._nice = NiceValues()

    # ------------------------------------------------------------ instructions

    def kill(self, container: str) -> None:
        """Kill every process, and the first one even outside of the cgroup; the exit returns as ContainerExited."""
        reach(Point.KILL_ASKED)
        if self._tree is not None:
            self._retries.act("kill", container, partial(self._kill, container, self._tree.get(container)))
        self._kill_session(container, outside=self._tree is not None)
        reach(Point.KILL_DONE)

    def freeze(self, container: str, *, frozen: bool) -> None:
        """Stop or continue every process. Without a cgroup, only the first process's group is affected."""
        reach(Point.FREEZE_ASKED if frozen else Point.THAW_ASKED)
        if self._tree is not None:
            self._retries.act("freeze", container, partial(self._tree.get(container).freeze, frozen))
        else:
            self.signal(container, signal.SIGSTOP if frozen else signal.SIGCONT)
        reach(Point.FREEZE_DONE if frozen else Point.THAW_DONE)

    def warn(self, container: str, signum: int) -> None:
        """Send the notice of a container's end."""
        self._limit_enforcer.ends(container)
        self.signal(container, signum)
        reach(Point.WARN_DONE)

    def confine(self, container: str, confinement: Confinement) -> None:
        """Change limits or class in place; returns as Confined. Promoted work is no longer first for the OOM killer."""
        promoted = self._limit_enforcer.is_opportunistic(container) and not confinement.opportunistic
        self._limit_enforcer.confine(container, confinement)
        if self._tree is not None and promoted:
            score = partial(set_oom_score_adj, self._tree.get(container).path, 0)
            self._retries.act("OOM score", container, score)

    def renice(self, rank: i.Renice) -> None:
        """Carry out Renice."""
        if self._weighs():
            return
        report = partial(log.debug, "a job's rank has no effect", container=rank.container)
        among = self._tree.get(rank.container).members if self._tree is not None else host_processes
        give = partial(self._nice.give, rank, among)
        self._retries.act("rank", rank.container, give, lambda why: why and report(why=why))

    def exited(self, ended: Exited) -> None:
        """Handle the exit of a container's first process: kill the rest."""
        reach(Point.EXIT_SEEN)
        self._orphans.discard(ended.container)
        self._retries.drop(ended.container)
        self._nice.drop(ended.container)
        if self._tree is not None:
            end = partial(self._end, ended.container, self._tree.get(ended.container))
            self._retries.act("end", ended.container, end, partial(self._report_end, ended))
        else:
            self._kill_session(ended.container)
            self._report_end(ended, None)

    def _kill(self, container: str, cgroup: Cgroup) -> None:
        self._let_end(container, cgroup)
        cgroup.kill()

    def _end(self, container: str, cgroup: Cgroup) -> Total | None:
        return cgroup.end(self._let_end(container, cgroup))

    def _let_end(self, container: str, cgroup: Cgroup) -> bool:
        """Let the processes that remain have the processor, so that they end; return whether there are any."""
        if lives := cgroup.populated():
            self._limit_enforcer.let_end(container)
        return lives

    def _report_end(self, ended: Exited, used: Total | None) -> None:
        used = used or Total(ended.cpu_seconds, ended.max_rss_bytes, oom_kills=0)
        self.on_event(
            e.ContainerExited(
                container=ended.container,
                exit_status=ended.exit_status,
                signal=ended.signal,
                cpu_seconds=used.cpu_s,
                memory_peak_bytes=used.memory_peak_bytes or ended.max_rss_bytes,
                oom_kills=used.oom_kills,
                ended_at=ended.ended_at,
            )
        )
        reach(Point.EXIT_TOLD)

    @_in_a_task
    async def signal(self, container: str, signum: int) -> None:
        """Signal the first process and its process group; ignore it if they are gone. If the launcher died, signal
        every process of the cgroup: without a parent, the first one's pid may be reused.
        """
        if container in self._orphans and self._tree is not None:
            self._tree.get(container).send_signal(signum)
        elif self._launcher is not None:
            with contextlib.suppress(LauncherGone):
                await self._launcher.signal(container, signum)

    # ------------------------------------------------------------ a launcher that died

    def launcher_lost(self) -> None:
        """Make starts wait for the next launcher (:meth:`use`), or for :meth:`give_up`."""
        self._launcher = None
        self._launcher_changed.clear()

    def use(self, launcher: Launcher) -> None:
        """Start containers with this launcher from now on."""
        self._launcher = launcher
        self._launcher_changed.set()
        self.look_at_orphans()

    def give_up(self) -> None:
        """Stop waiting for a launcher: pending starts are left to the next agent, whose journal has them."""
        self._launcher_changed.set()

    def watch_orphan(self, container: str) -> None:
        """Carry out WatchOrphan."""
        self._orphans.add(container)
        self._loop.call_soon(self.look_at_orphans)

    def look_at_orphans(self) -> None:
        """Report the end of each container without a parent whose last process is gone.

        Waits until the next launcher is connected, or none will be: the one that died may have left exit statuses.
        """
        if self._launcher is None and not self._launcher_changed.is_set():
            return
        for container in sorted(self._orphans):
            try:
                lives = self._populated(container)
            except OSError as error:  # no descriptor is free: the next check is soon
                log.warning("a container could not be checked", container=container, why=str(error))
                return
            if not lives:
                self.exited(Exited(container, None, None, 0.0, 0, time.time()))

    async def settled(self, container: str) -> None:
        """Wait until the kernel has the container's latest limits; report those that are not enforced."""
        await self._limit_enforcer.settled(container)
        self._limit_enforcer.report(container)

    async def settle(self) -> None:
        """Wait until all tasks begun are done."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------ in tasks

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a container's task failed", exc_info=error)

    @_in_a_task
    async def start(self, instruction: i.StartContainer) -> None:
        """Carry out StartContainer."""
        container, spec = instruction.container, instruction.spec
        reach(Point.START_ASKED)
        with contextlib.ExitStack() as opened:
            try:
                stdio = self._open_stdio(instruction, opened)
                not_enforced, procs = await self._create(instruction, opened)
                start = Start(
                    container=container, user=instruction.user, argv=spec.argv, env=spec.env, cwd=spec.cwd,
                    oom_score_adj=_FIRST_TO_GO if spec.opportunistic else 0,
                )  # fmt: skip
                pid = await self._ask(lambda launcher: launcher.start(start, procs_fd=procs, stdio=stdio))
            except LauncherGone as gone:
                if gone.asked:  # else the journal has `starting`, and the next agent knows that no launcher was asked
                    self.on_event(self._orphan(container, not_enforced))
                return
            except Exception as error:  # noqa: BLE001 - the outermost frame of a task: nothing may start for ever
                self._not_started(container, error)
                return
        reach(Point.START_LAUNCHED)
        self._nice.started(container, pid)
        self.on_event(e.ContainerStarted(container, pid, not_enforced, time.time()))
        reach(Point.START_TOLD)

    @_in_a_task
    async def adopt(self, instruction: i.AdoptProcess) -> None:
        """Carry out AdoptProcess."""
        container = instruction.container
        reach(Point.START_ASKED)
        if instruction.groups and self._launcher is not None and not self._launcher.finds_groups:
            instruction = replace(instruction, groups=())  # an older launcher could not give its processes back
        with contextlib.ExitStack() as opened:
            try:
                pid, user, tree = instruction.pid, instruction.user, instruction.tree
                borrow = instruction.borrow
                not_enforced, procs = await self._create(instruction, opened, borrowed=borrow)
                await self._ask(
                    lambda launcher: launcher.adopt(container, pid, user, procs_fd=procs, tree=tree, borrow=borrow)
                )
                if instruction.spec.opportunistic and self._tree is not None:
                    set_oom_score_adj(self._tree.get(container).path, _FIRST_TO_GO)
            except LauncherGone as gone:
                if gone.asked and self._populated(container):
                    self.on_event(self._orphan(container, not_enforced))
                elif gone.asked:
                    self.on_event(e.ContainerNotStarted(container, "the launcher died while it adopted it"))
                return
            except Exception as error:  # noqa: BLE001 - the outermost frame of a task: nothing may start for ever
                self._not_started(container, error)
                return
        reach(Point.START_LAUNCHED)
        self.on_event(e.ContainerStarted(container, instruction.pid, not_enforced, time.time()))
        reach(Point.START_TOLD)

    def _not_started(self, container: str, error: Exception) -> None:
        """Report a start that failed. An unexpected failure is logged, and must not leave a container that is
        starting for ever, with its promise.
        """
        if isinstance(error, LaunchFailed):
            self.on_event(e.ContainerNotStarted(container, str(error), error.exit_status, error.limit))
            return
        if not isinstance(error, OSError):
            log.error("a start failed", container=container, exc_info=error)
        self.on_event(e.ContainerNotStarted(container, str(error) or type(error).__name__))

    @_in_a_task
    async def give_back(self, instruction: i.GiveBack) -> None:
        """Carry out GiveBack."""
        container, why_not, used = instruction.container, "", Total(0.0, 0, 0)
        try:
            await self._ask(lambda launcher: launcher.give_back(container))
        except LaunchFailed as error:
            why_not = str(error)
            log.warning("a process stays in its container", container=container, why=why_not)
        else:  # the process is out of the container, regardless of its nice value: the launcher no longer watches it
            if not self._weighs() and (why := renice_tree(instruction.pid, instruction.nice, instruction.apart)):
                log.warning("a process keeps the nice value of its rank", container=container, why=why)
        if self._tree is not None:  # after the move, to include all use until then
            used = self._tree.get(container).total() or used
        self.on_event(e.GivenBack(container, used.cpu_s, used.memory_peak_bytes, time.time(), why_not))

    def _weighs(self) -> bool:
        """Return whether ranks are cgroup weights here, rather than nice values, which only root can restore."""
        return (self._tree is not None and "cpu" in self._tree.controllers) or os.geteuid() != 0

    async def _ask(self, ask: Callable[[Launcher], Awaitable[T]]) -> T:
        """Ask the launcher, or the next one if that died before it was asked.

        Raises:
            LauncherGone: the launcher died and may have done it; or none was asked, and none will be.
        """
        while True:
            if self._launcher is None:
                await self._launcher_changed.wait()
            if (launcher := self._launcher) is None:
                raise LauncherGone(asked=False)
            try:
                return await ask(launcher)
            except LauncherGone as gone:
                if gone.asked or self._launcher is launcher:
                    raise

    def _orphan(self, container: str, not_enforced: dict[str, str]) -> e.ContainerStarted:
        """Report a start whose launcher died before it answered: the container may run, start soon, or have ended.

        The next launcher may know its exit. Otherwise its cgroup shows whether it runs; if not, it is lost.
        """
        pids = self._tree.get(container).pids() if self._tree is not None else ()
        return e.ContainerStarted(container, next(iter(pids), 0), not_enforced, time.time(), orphaned=True)

    def _populated(self, container: str) -> bool:
        return self._tree is not None and self._tree.get(container).populated()

    @_in_a_task
    async def _kill_session(self, container: str, *, outside: bool = False) -> None:
        if self._launcher is not None:
            with contextlib.suppress(LauncherGone):
                await self._launcher.kill_session(container, outside=outside)

    async def _create(
        self, new: i.StartContainer | i.AdoptProcess, opened: contextlib.ExitStack, *, borrowed: bool = False
    ) -> tuple[dict[str, str], int | None]:
        """Create the cgroup with its limits; return the settings not enforced, and an open ``cgroup.procs``."""
        spec = new.spec
        confinement = confine(
            spec, spec.limits, opportunistic=spec.opportunistic, rank_weight=new.rank_weight, borrowed=borrowed
        )
        not_enforced, cgroup = await self._limit_enforcer.create(new.container, confinement, new.groups)
        unmet = worth_saying(not_enforced, spec, spec.limits, opportunistic=spec.opportunistic) if spec.strict else {}
        for name, why in unmet.items():
            raise LaunchFailed(f"not started, as limits are strict: {name} is not enforced: {why}", limit=name)
        if cgroup is None:
            return not_enforced, None
        procs = cgroup.open_procs()
        opened.callback(os.close, procs)
        return not_enforced, procs

    @_in_a_task
    async def reclaim(self, container: str, size_bytes: int) -> None:
        """Reclaim page cache; returns as Reclaimed."""
        reach(Point.RECLAIM_ASKED)
        if self._tree is not None:
            try:
                await asyncio.to_thread(self._tree.get(container).reclaim, size_bytes)
            except FileNotFoundError:
                log.debug("reclaimed too late: it has ended", container=container)
        reach(Point.RECLAIM_DONE)
        self.on_event(e.Reclaimed(container))

    def _open_stdio(self, instruction: i.StartContainer, opened: contextlib.ExitStack) -> tuple[int, int, int]:
        """Return the descriptors passed for the container, or files of the agent's own."""
        if instruction.spec.stdio:
            passed = self.stdio.take(instruction.spec.stdio, instruction.user)
            for descriptor in passed:
                opened.callback(os.close, descriptor)
            return passed
        return open_output(self._outputs / instruction.container, opened)

    def remove(self, container: str) -> None:
        """Remove a container: its cgroup, its network class, the launcher's record."""
        self._orphans.discard(container)
        self._remove(container)

    @_in_a_task
    async def _remove(self, container: str) -> None:
        reach(Point.REMOVE_ASKED)
        await self.removals.remove(container)
        self._retries.drop(container)  # not before: a stray's kill may wait, and its processes live on without it
        self._nice.drop(container)  # its end may have been found without its launcher
        with contextlib.suppress(LauncherGone):  # the next launcher reads the exit from its file, and reports it again
            await self._ask(lambda launcher: launcher.acknowledge(container))
        reach(Point.REMOVE_ACKNOWLEDGED)
