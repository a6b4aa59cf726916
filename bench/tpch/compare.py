"""Several such jobs at once on this host: through a static split, through oversubscription, through Penstock."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.tpch import shares
from bench.tpch.records import JobResult, JobSpec, Run

WAYS = ("static", "static-workers", "oversubscribed", "penstock", "gated")
#: Those with an agent: as installed, and with tasks that are CPU monotasks, too.
WITH_AGENT = ("penstock", "gated")
_PRELOAD = '["penstock.engines.dask.preload"]'
_START_TIMEOUT_S = 180.0
#: How often the order of the jobs is looked at (seconds).
_LOOK_S = 0.5


class RunFailed(Exception):  # noqa: N818 - named for the reader of the message
    """The run is worthless; the message is one line with the reason."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parts of a comparison.

    ``memory_bytes`` is for all jobs together; ``ordering`` is the master's (empty: no master) where a way does not name
    one; ``unequal``: the jobs are of different length; ``at_once``: each submits all its queries in the beginning;
    ``every_s``: how long after a job the next one begins;
    ``settings`` are keys below ``penstock`` in Dask's configuration, for the jobs that are gated.
    """

    data: Path
    directory: Path
    scale: float
    jobs: int
    cores: int
    queries: tuple[int, ...]
    memory_bytes: int
    ordering: str
    timeout_s: float
    unequal: bool = False
    at_once: bool = False
    every_s: float = 0.0
    settings: tuple[str, ...] = ()

    def environment(self, socket: str) -> dict[str, str]:
        """Return the environment that gates an unchanged job."""
        pairs = (setting.split("=", 1) for setting in self.settings)
        return {f"DASK_PENSTOCK__{key.upper()}": value for key, value in pairs} | {
            "PENSTOCK_SOCKET": socket,
            "DASK_DISTRIBUTED__WORKER__PRELOAD": _PRELOAD,
            "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": _PRELOAD,
        }

    def order_of(self, way: str) -> str:
        """The master's ordering: ``penstock:NAME`` and ``gated:NAME`` name one."""
        return way.partition(":")[2] or self.ordering

    def work(self) -> list[tuple[int, ...]]:
        """The queries of each job: all of them, each job beginning with another.

        Unequal: job 0 runs all, each further one so much fewer that their numbers fall evenly to (queries ÷ jobs). The
        longest is the first, which an order by arrival would serve first, too.
        """
        count = len(self.queries)
        if self.unequal:
            return [self.queries[: max(1, count * left // self.jobs)] for left in range(self.jobs, 0, -1)]
        starts = (each * count // self.jobs for each in range(self.jobs))
        return [self.queries[first:] + self.queries[:first] for first in starts]

    def specs(self, way: str, split: list[shares.Share]) -> list[JobSpec]:
        """The jobs.

        ``static`` has as many workers as its share has cores, at least one; every other way one for each core of the
        host.
        """
        workers = max(1, self.cores // self.jobs) if way == "static" else self.cores
        return [
            JobSpec(
                name=f"job-{index}",
                data=str(self.data),
                scale=self.scale,
                queries=queries,
                workers=workers,
                threads=1,
                memory_bytes=self.memory_bytes // self.jobs // workers,
                result=str(self.directory / f"{way}-{index}.result.json"),
                share=split[index].directory,
                cores=split[index].cores,
                at_once=self.at_once,
                arrives_s=index * self.every_s,
            )
            for index, queries in enumerate(self.work())
        ]


def run(plan: Plan, way: str) -> Run:
    """All jobs, one of the :data:`WAYS`, or one :data:`WITH_AGENT`, ``:`` and an ordering.

    Raises:
        RunFailed: a job or Penstock did not start, did not end in time, or failed.
    """
    with contextlib.ExitStack() as stack:
        split = [shares.WHOLE] * plan.jobs
        environment: dict[str, str] = {}
        node = None
        if way.startswith("static"):
            split = stack.enter_context(shares.split(plan.jobs, plan.cores))
        if way.partition(":")[0] in WITH_AGENT:
            node = stack.enter_context(_penstock(plan, plan.order_of(way)))
            environment = plan.environment(node.socket)
            if way.startswith("gated"):
                environment["DASK_PENSTOCK__CPU"] = "True"
        specs = plan.specs(way, split)
        processes = [
            stack.enter_context(_process(plan, way, spec, environment | {"DASK_PENSTOCK__JOB": spec.name}))
            for spec in specs
        ]
        give_up = time.monotonic() + _START_TIMEOUT_S
        for process, spec in zip(processes, specs, strict=True):
            _expect_ready(process, spec, give_up)
        before, busy = node.cpu() if node is not None else {}, _busy_s()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"begin\n")
            process.stdin.close()
        orders = _wait(plan, processes, specs, node if plan.order_of(way) else None)
        after, busy = node.cpu() if node is not None else {}, _busy_s() - busy
    jobs = [JobResult.load(Path(spec.result)) for spec in specs]
    for job in jobs:
        if job.rows != {name: jobs[0].rows[name] for name in job.rows}:
            raise RunFailed(f"{job.name} and {jobs[0].name} do not have the same answers")
    slot_s = after.get("slot_seconds", 0.0) - before.get("slot_seconds", 0.0)
    return Run(way, plan.cores, specs[0].workers * specs[0].threads, jobs, slot_s, busy, orders)


def _busy_s() -> float:
    """CPU time that the host has used since it started, in seconds."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


# ---------------------------------------------------------------- the jobs


@contextlib.contextmanager
def _process(plan: Plan, way: str, spec: JobSpec, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A job that has been started; it and its workers are gone on the way out."""
    path = plan.directory / f"{way}-{spec.name}.spec.json"
    spec.save(path)
    around = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "DASK_"))}
    # One thread each for libraries that start threads of their own: Dask does not count these, and they would blur the
    # split.
    around |= {"OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1", **environment}
    with (plan.directory / f"{way}-{spec.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.tpch.job", str(path)],
            env=around,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _expect_ready(process: subprocess.Popen[bytes], spec: JobSpec, give_up: float) -> None:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], max(0.0, give_up - time.monotonic()))
    if not readable or process.stdout.readline() != b"ready\n":
        raise RunFailed(f"{spec.name} is not ready; its log is beside {spec.result}")


def _wait(
    plan: Plan, processes: list[subprocess.Popen[bytes]], specs: list[JobSpec], node: Node | None
) -> list[list[str]]:
    """Until all have ended; the orders of the jobs that the agent had meanwhile, if there is a ``node`` to watch."""
    give_up = time.monotonic() + plan.timeout_s
    orders: list[list[str]] = []
    for process, spec in zip(processes, specs, strict=True):
        while (status := process.poll()) is None:
            if time.monotonic() > give_up:
                raise RunFailed(f"{spec.name} has not ended after {plan.timeout_s:g} s")
            order = node.order() if node is not None else []
            if order and (not orders or orders[-1] != order):
                orders.append(order)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
        if status != 0:
            raise RunFailed(f"{spec.name} ended with status {status}; its log is beside {spec.result}")
    return orders


# ---------------------------------------------------------------- Penstock


@dataclass(frozen=True)
class Node:
    """A running Penstock: where it listens."""

    socket: str
    http: str

    def cpu(self) -> dict[str, Any]:
        """Return the CPU slots in the agent's status."""
        kinds: dict[str, dict[str, Any]] = self._status()["kinds"]
        return kinds["cpu"]

    def order(self) -> list[str]:
        """Which job goes before which now: their names, those of one priority together (``job-0=job-1``)."""
        by_priority: dict[float, list[str]] = {}
        for job in self._status()["jobs"]:
            by_priority.setdefault(job["priority"], []).append(job["name"])
        return ["=".join(sorted(by_priority[priority])) for priority in sorted(by_priority, reverse=True)]

    def _status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.http}/status", timeout=30) as answer:
            status: dict[str, Any] = json.load(answer)
        return status


@contextlib.contextmanager
def _penstock(plan: Plan, ordering: str) -> Iterator[Node]:
    """An agent with one CPU slot for each core, and a master if an ordering is wanted."""
    directory = plan.directory / "node"
    ports = directory / "ports.json"
    directory.mkdir(exist_ok=True)
    ports.unlink(missing_ok=True)
    settings = ["--set", f"cores={plan.cores}", "--set", "http=127.0.0.1:0"]
    if ordering:
        command = ["penstock.cli.main", "up", *settings, "--master-set", f"ordering={ordering}"]
    else:
        command = ["agent", *settings]
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_SOCKET"} | {
        "PENSTOCK_RUNTIME_DIR": str(directory / "run"),
        "PENSTOCK_STATE_DIR": str(directory / "state"),
    }
    with (directory / "penstock.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, "--port-file", str(ports)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        give_up = time.monotonic() + _START_TIMEOUT_S
        while not ports.exists():
            if process.poll() is not None or time.monotonic() > give_up:
                raise RunFailed(f"Penstock did not start; {directory / 'penstock.log'} says why")
            time.sleep(0.05)
        said: dict[str, str] = json.loads(ports.read_text(encoding="utf-8"))
        yield Node(said["socket"], said.get("agent_http") or said["http"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_START_TIMEOUT_S)
