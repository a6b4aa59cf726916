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

WAYS = ("static", "oversubscribed", "penstock")
_PRELOAD = '["penstock.engines.dask.preload"]'
_START_TIMEOUT_S = 180.0


class RunFailed(Exception):  # noqa: N818 - named for what the reader is told
    """One line: what made the run worthless."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is compared.

    ``memory_bytes`` is for all jobs together; ``ordering`` the master's (empty: no master); ``settings`` are keys below
    ``penstock`` in Dask's configuration, for the jobs that are gated.
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
    settings: tuple[str, ...] = ()

    def environment(self, socket: str) -> dict[str, str]:
        """What gates an unchanged job."""
        pairs = (setting.split("=", 1) for setting in self.settings)
        return {f"DASK_PENSTOCK__{key.upper()}": value for key, value in pairs} | {
            "PENSTOCK_SOCKET": socket,
            "DASK_DISTRIBUTED__WORKER__PRELOAD": _PRELOAD,
            "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": _PRELOAD,
        }

    def specs(self, way: str, split: list[shares.Share]) -> list[JobSpec]:
        """The jobs. Each runs all the queries, and begins with another.

        A static share gets as many workers as cores, at least one; who may use the whole host gets one for each core.
        """
        workers = max(1, self.cores // self.jobs) if way == "static" else self.cores
        return [
            JobSpec(
                name=f"job-{index}",
                data=str(self.data),
                scale=self.scale,
                queries=self.queries[first:] + self.queries[:first],
                workers=workers,
                threads=1,
                memory_bytes=self.memory_bytes // self.jobs // workers,
                result=str(self.directory / f"{way}-{index}.result.json"),
                share=split[index].directory,
                cores=split[index].cores,
            )
            for index, first in enumerate(each * len(self.queries) // self.jobs for each in range(self.jobs))
        ]


def run(plan: Plan, way: str) -> Run:
    """All jobs, one of the :data:`WAYS`.

    Raises:
        RunFailed: a job or Penstock did not start, did not end in time, or failed.
    """
    with contextlib.ExitStack() as stack:
        split = [shares.WHOLE] * plan.jobs
        environment: dict[str, str] = {}
        node = None
        if way == "static":
            split = stack.enter_context(shares.split(plan.jobs, plan.cores))
        if way == "penstock":
            node = stack.enter_context(_penstock(plan))
            environment = plan.environment(node.socket)
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
        _wait(plan, processes, specs)
        after, busy = node.cpu() if node is not None else {}, _busy_s() - busy
    jobs = [JobResult.load(Path(spec.result)) for spec in specs]
    for job in jobs:
        if job.rows != {name: jobs[0].rows[name] for name in job.rows}:
            raise RunFailed(f"{job.name} and {jobs[0].name} do not have the same answers")
    slot_s = after.get("slot_seconds", 0.0) - before.get("slot_seconds", 0.0)
    return Run(way, plan.cores, specs[0].workers * specs[0].threads, jobs, slot_s, busy)


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
    # One thread each for what Dask does not count: libraries that start threads of their own would blur the split.
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


def _wait(plan: Plan, processes: list[subprocess.Popen[bytes]], specs: list[JobSpec]) -> None:
    give_up = time.monotonic() + plan.timeout_s
    for process, spec in zip(processes, specs, strict=True):
        try:
            status = process.wait(max(0.0, give_up - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise RunFailed(f"{spec.name} has not ended after {plan.timeout_s:g} s") from None
        if status != 0:
            raise RunFailed(f"{spec.name} ended with status {status}; its log is beside {spec.result}")


# ---------------------------------------------------------------- Penstock


@dataclass(frozen=True)
class _Node:
    """A running Penstock: where it listens."""

    socket: str
    http: str

    def cpu(self) -> dict[str, Any]:
        """What the agent's status says of CPU slots."""
        with urllib.request.urlopen(f"http://{self.http}/status", timeout=30) as answer:
            kinds: dict[str, dict[str, Any]] = json.load(answer)["kinds"]
        return kinds["cpu"]


@contextlib.contextmanager
def _penstock(plan: Plan) -> Iterator[_Node]:
    """An agent with one CPU slot for each core, and a master if an ordering is wanted."""
    directory = plan.directory / "node"
    ports = directory / "ports.json"
    directory.mkdir(exist_ok=True)
    ports.unlink(missing_ok=True)
    settings = ["--set", f"cores={plan.cores}", "--set", "http=127.0.0.1:0"]
    if plan.ordering:
        command = ["penstock.cli.main", "up", *settings, "--master-set", f"ordering={plan.ordering}"]
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
        yield _Node(said["socket"], said.get("agent_http") or said["http"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_START_TIMEOUT_S)
