"""One analytics job: a process that manages it and a few workers that execute it; ``python -m demo.job SPEC.json``.

The DAG is Ursa's (§4.1.3): a map stage (disk read → CPU map), a barrier, a reduce stage (network pull → CPU merge →
disk write). Cutting the in-edges of the network monotasks leaves one connected component per map and per reduce: the
tasks. A task stays on the worker that got its first monotask. Standard output gets a JSON line when the job could begin
(it does when standard input has a line for it), and one for each finished task.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from demo.corpus import Corpus
from demo.gates import SlotGate, StageLeft
from demo.records import JobResult, JobSpec, Work
from demo.worker import LANES, Spawned, Worker, spawn


class JobError(Exception):
    """A job failed; the message is one line."""


class Executor:
    """A worker as its job sees it. The CPU monotask that it executes holds ``busy``; ``tasks`` are pinned to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.busy = asyncio.Lock()
        self.tasks = 0
        self._writer = writer
        self._waiting: dict[tuple[str, int], asyncio.Future[dict[str, Any]]] = {}
        self._gone = False
        self._listening = asyncio.create_task(self._listen(reader))

    @classmethod
    async def connect(cls, spawned: Spawned) -> Executor:
        """Take over the socket of a worker."""
        return cls(*await asyncio.open_connection(sock=spawned.socket))

    async def call(self, do: str, task: int, **more: Any) -> dict[str, Any]:
        """Have a monotask executed.

        Raises:
            JobError: it failed, or the worker is gone.
        """
        if self._gone:
            raise JobError("a worker is gone")
        future = self._waiting[do, task] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps({"do": do, "task": task, **more}).encode() + b"\n")
        answer: dict[str, Any] = await future
        if "error" in answer:
            raise JobError(answer["error"])
        return answer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            answer = json.loads(line)
            self._waiting.pop((answer["do"], answer["task"])).set_result(answer)
        self._gone = True
        for future in self._waiting.values():
            future.set_exception(JobError("a worker is gone"))

    async def close(self) -> None:
        """The worker ends when it reads the end of its commands."""
        self._writer.close()
        await self._listening


class Task:
    """A map or reduce task while it is executed."""

    def __init__(self, stage: str, index: int) -> None:
        self.stage = stage
        self.index = index
        self.name = f"{stage}-{index}"
        self.executor: Executor | None = None


class AnalyticsJob:
    """Runs the DAG of one job on its executors, as far as its gate lets it."""

    def __init__(self, corpus: Corpus, executors: Sequence[Executor], gate: SlotGate) -> None:
        self._corpus = corpus
        self._executors = executors
        self._gate = gate
        self._sizes = [0] * (len(corpus.ends) + 1)
        #: Both stages; how much the reduce tasks read is known when all maps are done.
        self._left = {"map": StageLeft("map", len(corpus.partitions)), "reduce": StageLeft("reduce", len(self._sizes))}
        self.works: list[Work] = []

    async def run(self) -> None:
        """Run both stages.

        Raises:
            ExceptionGroup: of JobError and of the gate's errors.
        """
        await self._stage("map", [partition.size for partition in self._corpus.partitions])
        await self._stage("reduce", self._sizes)

    async def _stage(self, stage: str, sizes: Sequence[int]) -> None:
        execute = self._map if stage == "map" else self._reduce
        done, left_bytes = 0, sum(sizes)
        self._progress(StageLeft(stage, len(sizes), done, left_bytes))
        async with asyncio.TaskGroup() as group:

            async def one(index: int) -> None:
                nonlocal done, left_bytes
                task = Task(stage, index)
                await self._gate.begin()
                await execute(task, sizes[index])
                self._gate.done()
                assert task.executor is not None
                task.executor.tasks -= 1
                done += 1
                left_bytes -= sizes[index]
                self._progress(StageLeft(stage, len(sizes), done, left_bytes))
                report(stage=stage, done=done, of=len(sizes))

            # The largest first: a large one that begins last would leave the other workers without work.
            for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
                group.create_task(one(index))

    def _progress(self, left: StageLeft) -> None:
        self._left[left.stage] = left
        self._gate.progress(list(self._left.values()))

    async def _map(self, task: Task, size: int) -> None:
        await self._monotask(task, "read", size)
        made = await self._monotask(task, "map", size)
        self._sizes = [a + b for a, b in zip(self._sizes, made, strict=True)]

    async def _reduce(self, task: Task, size: int) -> None:
        await self._monotask(task, "pull", size)
        written = await self._monotask(task, "merge", size)
        await self._monotask(task, "write", written)

    async def _monotask(self, task: Task, do: str, input_bytes: int) -> Any:
        kind = LANES[do]
        if kind != "cpu":
            return await self._execute(task, do, kind, input_bytes)
        assert task.executor is not None
        # Asking for the CPU while the worker computes would hold a slot that the worker cannot use.
        async with task.executor.busy:
            return await self._execute(task, do, kind, input_bytes)

    async def _execute(self, task: Task, do: str, kind: str, input_bytes: int) -> Any:
        asked = time.monotonic()
        async with self._gate.monotask(kind, input_bytes, task.stage):
            began = time.monotonic()
            answer = await self._pinned(task).call(do, task.index)
        ended = time.monotonic()
        self.works.append(Work(kind, task.stage, task.name, asked, began, ended, input_bytes, answer["cpu_s"]))
        return answer["result"]

    def _pinned(self, task: Task) -> Executor:
        if task.executor is None:
            task.executor = min(self._executors, key=lambda executor: executor.tasks)
            task.executor.tasks += 1
        return task.executor


def report(**event: Any) -> None:
    """Print one JSON line for the process that started the job."""
    print(json.dumps(event), flush=True)


async def manage(spec: JobSpec, corpus: Corpus, workers: Sequence[Spawned]) -> JobResult:
    """Run the job on workers that were forked for it, once the start command comes."""
    open_gate = opener(spec)
    executors = [await Executor.connect(worker) for worker in workers]
    ports = [worker.port for worker in workers]
    before = [(await executor.call("peers", 0, ports=ports))["result"] for executor in executors]
    before_s = time.process_time() + sum(before)
    report(stage="ready", done=0, of=0)
    await asyncio.to_thread(sys.stdin.readline)
    began = time.monotonic()
    gate = await open_gate()
    job = AnalyticsJob(corpus, executors, gate)
    await job.run()
    await gate.end()
    ended = time.monotonic()
    for executor in executors:
        await executor.close()
    return JobResult(spec.name, began, ended, -before_s, job.works)


def opener(spec: JobSpec) -> Callable[[], Awaitable[SlotGate]]:
    """How to open the job's gate, Penstock's where the specification names a socket; everything is loaded for it."""
    if not spec.socket:

        async def slots() -> SlotGate:
            return SlotGate(spec.slots)

        return slots
    from demo.ranked import RankedGate  # here, so that the other executors do not load its imports

    return partial(RankedGate.open, spec.socket, spec.name, spec.slots)


def run(spec: JobSpec) -> JobResult:
    """Fork the workers, run the job, wait for the workers' end (so that their CPU time counts as ours)."""
    if spec.cores:
        os.sched_setaffinity(0, spec.cores)
    corpus = Corpus.load(Path(spec.corpus)).first(spec.part, spec.workers)
    Path(spec.output).mkdir(parents=True, exist_ok=True)
    token = secrets.token_bytes(16)
    workers = [spawn(lambda: Worker(corpus, spec.operation, Path(spec.output), token)) for _ in range(spec.workers)]
    result = asyncio.run(manage(spec, corpus, workers))
    for worker in workers:
        os.waitpid(worker.pid, 0)
    of_workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result._replace(cpu_s=time.process_time() + of_workers.ru_utime + of_workers.ru_stime + result.cpu_s)


def main(arguments: Sequence[str]) -> int:
    """The process. Exit status 1 and one line per failure when something failed."""
    spec = JobSpec.load(Path(arguments[0]))
    try:
        run(spec).save(Path(spec.result))
    except Exception as failure:  # noqa: BLE001 - the root of the process
        for error in failure.exceptions if isinstance(failure, ExceptionGroup) else (failure,):
            print(f"{spec.name}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
