"""The agent's work every ``sample_interval_s``: a sample, decisions on it, outputs, and, less often, repairs."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from agent.config import AgentConfig
from agent.core import events as e
from agent.core.events import CpuTimesRead
from agent.core.instructions import ReadCpuTimes
from agent.core.snapshot import Snapshot
from agent.executor import Executor
from agent.jvm import JvmHeaps
from agent.limit_enforcer import LimitEnforcer
from agent.monitor import MemoryWatch, Sampler
from agent.output import remove_outputs, trim_output
from agent.shell import Shell
from penstock.ticks import next_tick_s
from penstock.trouble import Troubles

#: The outputs of containers that did not run, and files without a container, are looked for once in so many samples.
_ROUND = 16


class Periodic:
    """One per agent; runs until cancelled. Failures of the system are reported as degraded, and tried again."""

    def __init__(
        self, shell: Shell, executor: Executor, sampler: Sampler, limit_enforcer: LimitEnforcer, heaps: JvmHeaps,
        watch: MemoryWatch | None, outputs: Path, config: Callable[[], AgentConfig], troubles: Troubles,
        sampled: Callable[[], object],
    ) -> None:  # fmt: skip
        """``sampled`` is called after the decisions on each sample."""
        self._shell, self._sampler, self._limit_enforcer = shell, sampler, limit_enforcer
        self._executor = executor
        self._heaps, self._watch = heaps, watch
        self._outputs = outputs
        self._config = config
        self._troubles = troubles
        self._sampled = sampled
        self._samples = 0
        self._had_outputs: set[str] = set()
        self._snapshot = Snapshot(at=time.monotonic(), interval_s=0.0)
        shell.read_cpu_times = self._read_cpu_times

    async def run(self) -> None:
        """Run until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        repair_at = due + self._config().repair_interval_s
        while True:
            due = max(next_tick_s(due, self._config().sample_interval_s), loop.time())
            await asyncio.sleep(due - loop.time())
            await self._troubles.survive("samples", self._sample())
            await self._troubles.survive("removals", self._executor.removals.remove_left())
            await self._troubles.survive("outputs", self._trim())
            await self._troubles.survive("journal", self._shell.retry_journal())
            interval_s = self._config().repair_interval_s
            if interval_s and loop.time() >= repair_at:
                repair_at = loop.time() + interval_s
                await self._troubles.survive("repairs", self._repair())

    async def _sample(self) -> None:
        containers = self._shell.node.containers
        self._executor.look_at_orphans()
        traffic = await self._limit_enforcer.counters()
        self._samples += 1
        closely = containers.watched_closely(slack_awaited=bool(self._shell.node.held.waiting))
        snapshot = self._snapshot = self._sampler.sample(list(containers.live), traffic, closely)
        self._shell.dispatch(e.Sampled(snapshot, time.time()))
        self._sampled()
        if self._shell.link is not None:
            self._shell.link.sampled()
        self._limit_enforcer.retry(snapshot)
        self._heaps.follow(self._shell.node, time.monotonic())
        if self._watch is not None:
            self._watch.promised(containers.promised())

    def _read_cpu_times(self, read: ReadCpuTimes) -> None:
        with contextlib.suppress(OSError):  # out of descriptors: the next sample reports it
            self._shell.dispatch(CpuTimesRead(self._sampler.read_cpu_times(self._shell.node.containers.live)))
            if (link := self._shell.link) is not None:
                (link.send_heartbeat if read.again else link.send_soon)()

    async def _trim(self) -> None:
        containers, max_bytes = self._shell.node.containers, self._config().output_max_bytes
        for container in self._may_have_written(containers.live):
            for stream in ("stdout", "stderr"):
                if trim_output(f"{self._outputs}/{container}/{stream}", max_bytes):
                    self._shell.note("output trimmed", container=container, stream=stream)
        known = containers.live.keys() | containers.ended.by_id.keys()
        for gone in self._had_outputs - known:
            shutil.rmtree(self._outputs / gone, ignore_errors=True)
        if self._samples % _ROUND == 0:
            remove_outputs(self._outputs, known)
        self._had_outputs = known

    def _may_have_written(self, containers: Iterable[str]) -> list[str]:
        """Return the containers whose processes ran since the previous sample, and some of the others: a process
        outside may have their files open, too.
        """
        uses = self._snapshot.containers
        return [
            name
            for number, name in enumerate(containers)
            if (number + self._samples) % _ROUND == 0 or (use := uses.get(name)) is None or use.cpu_cores > 0
        ]

    async def _repair(self) -> None:
        for what in await self._limit_enforcer.repair():
            self._shell.note("repaired", setting=what)
