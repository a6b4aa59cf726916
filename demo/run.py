"""One run: all jobs at once under one executor, and the agent's status meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from demo.plain import PlainProcess
from demo.plan import PLANNED_JOBS, USERS, Plan, PlannedJob
from demo.records import BESIDE, JobResult, JobSpec
from demo.speed import looks
from demo.tenants import tallied
from penstock.client import AgentClient, Container
from penstock.model.container import ContainerSpec, Ended, Limits
from penstock.wire.errors import RpcError

#: How often the agent's status is read for the timeline.
SAMPLE_S = 1.0
#: How long the agent may take to see that memory is wanted: many times its sampling interval, for slow machines.
PREEMPTION_S = 20.0


class RunFailed(Exception):  # noqa: N818 - named for the reader of the message
    """The run is worthless; the message is one line with the reason."""


@dataclass
class JobRun:
    """One job as its driver saw it. Times are CLOCK_MONOTONIC; ``cpu_seconds`` are its processes' since it began."""

    name: str
    began: float
    ended: float
    cpu_seconds: float
    memory_peak_bytes: int
    not_enforced: dict[str, str]
    result: JobResult

    @property
    def completion_s(self) -> float:
        """Job completion time: from its start command to the end of its container."""
        return self.ended - self.began


@dataclass
class Archive:
    """The result of the opportunistic job. ``bytes_done`` is how much it had compressed."""

    bytes_done: int
    memory_bytes: int
    ended: Ended


@dataclass
class Run:
    """The results of the jobs under one executor. ``look_s``: how long a fixed piece of work took meanwhile."""

    executor: str
    began: float
    ended: float
    jobs: list[JobRun]
    look_s: float
    archive: Archive | None = None
    preemptions: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def makespan_s(self) -> float:
        """From the first request to the last end."""
        return self.ended - self.began


class Runner:
    """Starts everything in containers of the agent; ``progress`` gets the fraction of the tasks done."""

    def __init__(self, agent: AgentClient, plan: Plan, executor: str, progress: Callable[[float], None]) -> None:
        self._agent = agent
        self._plan = plan
        self._executor = executor
        self._progress = progress
        self._directory = plan.directory / executor
        self._done: dict[tuple[str, str], int] = {}
        self._all_ready = asyncio.Barrier(len(PLANNED_JOBS))
        self._turns = {user: asyncio.Lock() for user in USERS}
        self._table_wanted = asyncio.Event()
        self._samples: list[dict[str, Any]] = []

    async def run(self) -> Run:
        """Run everything, and leave nothing behind.

        Raises:
            ExceptionGroup: of RunFailed (a job failed) and of the client's errors.
        """
        self._directory.mkdir()
        sampling = asyncio.create_task(self._sample())
        try:
            async with looks() as looks_s, contextlib.AsyncExitStack() as tenants:
                archive = None
                if self._executor == BESIDE:
                    archive = await self._tenant(tenants, "archive", opportunistic=True)
                async with asyncio.TaskGroup() as group:
                    if archive is not None:
                        group.create_task(self._table(tenants))
                    running = [
                        group.create_task(self._job(*job))
                        for job in zip(PLANNED_JOBS, self._plan.jobs(self._executor), strict=True)
                    ]
                jobs = [job.result() for job in running]
                began, ended = min(job.began for job in jobs), max(job.ended for job in jobs)
                run = Run(self._executor, began, ended, jobs, median(looks_s))
                if archive is not None:
                    await _preempted(archive)
            if archive is not None:
                run.archive = Archive(tallied(self._tally), self._plan.archive_bytes, await archive.wait())
        finally:
            sampling.cancel()
        status = await self._agent.status()
        run.preemptions = status["preemptions"] if archive is not None else []
        run.samples = self._samples
        return run

    # ------------------------------------------------------------ jobs

    async def _job(self, planned: PlannedJob, spec: JobSpec) -> JobRun:
        path = self._directory / f"{spec.name}.spec.json"
        spec.save(path)
        cores = self._plan.share if self._executor == "static" else None
        container = ContainerSpec(
            argv=(sys.executable, "-m", "demo.job", str(path)),
            name=spec.name,
            env=self._plan.environment,
            cwd=str(self._plan.project),
            limits=Limits(cpu_cores=cores),
            memory_bytes=self._plan.job_bytes(planned),
        )
        plain = self._executor == "plain"
        async with self._launched(container, plain=plain) as (launched, begin, output):
            await output.readline()  # it is ready, or over
            await self._all_ready.wait()
            began = time.monotonic()
            # On a static split the jobs of a user run one after the other in the user's share.
            async with self._turns[planned.operation] if self._executor == "static" else contextlib.nullcontext():
                with contextlib.suppress(BrokenPipeError):  # its exit status has the reason
                    os.write(begin, b"begin\n")
                async for line in output:
                    self._heard(spec.name, json.loads(line))
                ended = await launched.wait()
        if not ended.ok:
            raise RunFailed(f"{spec.name} ({self._executor}) failed: {ended.by.value} {ended.reason}".rstrip())
        result = JobResult.load(Path(spec.result))
        return JobRun(
            name=spec.name,
            began=began,
            ended=time.monotonic(),
            cpu_seconds=result.cpu_s,
            memory_peak_bytes=ended.memory_peak_bytes,
            not_enforced=dict(launched.not_enforced),
            result=result,
        )

    def _heard(self, job: str, event: dict[str, Any]) -> None:
        self._done[job, event["stage"]] = event["done"]
        done = sum(self._done.values())
        self._progress(done / self._plan.tasks)
        if done >= self._plan.tasks // 3:
            self._table_wanted.set()

    # ------------------------------------------------------------ the others on the host

    @property
    def _tally(self) -> Path:
        return self._directory / "archive.tally"

    async def _table(self, tenants: contextlib.AsyncExitStack) -> None:
        """Regular work that wants its promised memory when a third of the tasks is done."""
        await self._table_wanted.wait()
        await self._tenant(tenants, "table", opportunistic=False)

    async def _tenant(self, tenants: contextlib.AsyncExitStack, what: str, *, opportunistic: bool) -> Container:
        """Start one and wait until it holds its memory; it is killed when the stack is closed."""
        memory_bytes = self._plan.archive_bytes if opportunistic else self._plan.table_bytes
        argv = [sys.executable, "-m", "demo.tenants", what, "--memory", str(memory_bytes)]
        argv += ["--text", str(self._plan.text), "--tally", str(self._tally)]
        if opportunistic and not self._plan.idle_class_enforced:
            argv.append("--yielding")
        spec = ContainerSpec(
            argv=tuple(argv),
            name=what,
            env=self._plan.environment,
            cwd=str(self._plan.project),
            memory_bytes=memory_bytes,
            opportunistic=opportunistic,
        )
        launched, _, output = await tenants.enter_async_context(self._launched(spec))
        assert isinstance(launched, Container)
        await output.readline()
        return launched

    @contextlib.asynccontextmanager
    async def _launched(
        self, spec: ContainerSpec, *, plain: bool = False
    ) -> AsyncIterator[tuple[Container | PlainProcess, int, asyncio.StreamReader]]:
        """Yield a container, its standard input (a descriptor) and output; kill it at the end if it still runs.

        ``plain``: a process without a container.
        """
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_out, "rb", 0)
        )
        try:
            container: Container | PlainProcess
            try:
                stdio = (theirs_in, theirs_out, 2)
                if plain:
                    container = PlainProcess(spec.argv, spec.env, spec.cwd, stdio)
                else:
                    container = await self._agent.launch(spec, stdio=stdio)
            finally:
                os.close(theirs_in)
                os.close(theirs_out)
            try:
                yield container, ours_in, reader
            finally:
                await self._stop(container)
        finally:
            os.close(ours_in)
            transport.close()

    async def _stop(self, container: Container | PlainProcess) -> None:
        with contextlib.suppress(RpcError):  # it has ended already
            await container.kill()
        await container.wait()

    # ------------------------------------------------------------ the timeline

    async def _sample(self) -> None:
        while True:
            status = await self._agent.status()
            self._samples.append({"at": time.monotonic(), **trimmed(status)})
            await asyncio.sleep(SAMPLE_S)


async def _preempted(archive: Container) -> None:
    """Where the jobs were over before the agent's next look at memory, the table is there still: wait for that look."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PREEMPTION_S):
            await archive.wait()


def trimmed(status: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a status document that the picture needs."""
    live = [c for c in status["containers"] if c["ended"] is None]
    return {
        "kinds": status["kinds"],
        "host": status["host"],
        "memory": status["memory"],
        "containers": {c["name"]: c["sample"].get("memory_bytes", 0) for c in live},
    }
