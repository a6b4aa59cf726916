"""Grants per second of the agent's one core, with frames that carry many submissions, completions and grants.

The client's frames are made before the clock starts, so that only the agent is measured: a real one, in a process of
its own, with 10,000 monotasks of four jobs queued all the time.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import uvloop

from bench._agent import agent_and_pid
from penstock.client import AgentClient
from penstock.model import MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Complete, Completion, Grants, Hello, RegisterJob, Submit
from penstock.wire.agent_methods import TYPED
from penstock.wire.connection import RpcConnection, read
from penstock.wire.rpc import Notification, Response

JOBS, QUEUED = 4, 10_000
BATCHES = (1, 16, 64, 256)
GRANTS = 200_000
LEASED = 50_000
BAR_PER_S = 200_000


class Throughput(NamedTuple):
    """Grants (or monotasks) a second, by the wall clock and by the agent's CPU time."""

    per_s: float
    per_cpu_s: float


class RawClient:
    """A blocking connection that sends frames made beforehand and counts grants."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._wire = RpcConnection(typed=TYPED)
        self.granted: list[tuple[str, list[int]]] = []

    def call(self, method: str, params: msgspec.Struct) -> dict[str, object]:
        """Ask and wait."""
        self._socket.sendall(self._wire.send_request(method, params)[1])
        while True:
            for answer in self._receive():
                assert answer.error is None, answer
                return read(answer.result, dict)

    def send(self, data: bytes) -> None:
        """As it is."""
        self._socket.sendall(data)

    def wait_for(self, count: int) -> list[tuple[str, list[int]]]:
        """So many grants."""
        while sum(len(ids) for _, ids in self.granted) < count:
            self._receive()
        taken, self.granted = self.granted, []
        return taken

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def _receive(self) -> list[Response[Any]]:
        answers = []
        for message in self._wire.receive(self._socket.recv(1 << 18)):
            if isinstance(message, Response):
                answers.append(message)
            elif isinstance(message, Notification) and isinstance(message.params, Grants):
                self.granted.append((message.params.job, [int(one) for one in message.params.ids]))
        return answers


def batched(path: Path, pid: int, batch: int) -> Throughput:
    """``batch`` slots: as many monotasks are completed, submitted and granted at a time."""
    client = RawClient(path)
    client.call("hello", Hello(protocol=1))
    jobs = [str(client.call("register_job", RegisterJob(name=f"job-{n}"))["job"]) for n in range(JOBS)]
    count = max(GRANTS // 10, GRANTS * batch // max(BATCHES)) // batch * batch
    submissions = [submission(jobs[turn % JOBS], turn * batch, batch) for turn in range((count + QUEUED) // batch + 1)]
    for data in submissions[: QUEUED // batch + 1]:
        client.send(data)
    rest = iter(submissions[QUEUED // batch + 1 :])
    encoder = msgspec.msgpack.Encoder()
    process = psutil.Process(pid)
    held = client.wait_for(batch)
    began, cpu, done = time.perf_counter(), _cpu_s(process), 0
    while done < count - 2 * batch:
        frames = [encoder.encode((2, "complete", (Complete(job=job, monotasks=[Completion(id=n) for n in ids]),)))
                  for job, ids in held]  # fmt: skip
        client.send(b"".join(frames) + next(rest))
        held = client.wait_for(batch)
        done += batch
    took, used = time.perf_counter() - began, _cpu_s(process) - cpu
    client.close()
    return Throughput(done / took, done / used)


def submission(job: str, first: int, count: int) -> bytes:
    """A frame of monotasks of different sizes, so that they are put in order."""
    specs = [
        MonotaskSpec(id=first + n, kind=ResourceKind.CPU, input_bytes=(first + n) * 7919 % 100_000)
        for n in range(count)
    ]
    return msgspec.msgpack.encode((2, "submit", (Submit(job=job, monotasks=specs),)))


async def leased(path: Path, pid: int) -> Throughput:
    """Trivial monotasks of one job, all queued, through our own client, one after the other in one slot."""
    async with await AgentClient.connect(path, client="bench") as agent:
        job = await agent.register_job("leased")
        monotasks = [job.submit("cpu", 1) for _ in range(LEASED)]
        await monotasks[0].granted
        process = psutil.Process(pid)
        began, cpu = time.perf_counter(), _cpu_s(process)
        for monotask in monotasks:
            await monotask.granted
            monotask.complete()
        await job.tasks_done([])
        return Throughput(LEASED / (time.perf_counter() - began), LEASED / (_cpu_s(process) - cpu))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(directory: Path) -> Iterator[tuple[str, Throughput]]:
    """Return the name of each measurement, and its figure."""
    for batch in BATCHES:
        with agent_and_pid(directory, cores=batch, lease_s=0.0) as (path, pid):
            yield f"{batch} a frame", batched(path, pid, batch)
    for lease_s in (0.0, 0.005):
        what = f"one by one, lease {lease_s * 1000:g} ms"
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        with agent_and_pid(directory, cores=1, lease_s=lease_s) as (path, pid), runner:
            yield what, runner.run(leased(path, pid))


def main() -> int:
    """Print the table; 1 where the bar was missed."""
    print(f"{'grants':<28}{'per s':>12}{'per s of the agent’s CPU time':>32}")
    best = 0.0
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        for what, figure in measure(Path(directory)):
            print(f"{what:<28}{figure.per_s:>12,.0f}{figure.per_cpu_s:>32,.0f}", flush=True)
            if "a frame" in what:
                best = max(best, figure.per_cpu_s)
    met = best >= BAR_PER_S
    print(f"bar: ≥ {BAR_PER_S:,} a second of one core: {'met' if met else 'NOT met'}")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
