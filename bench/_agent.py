"""An agent in a process of its own, for measuring it from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.transport import RpcPeer
from penstock.wire import master_api
from penstock.wire.agent_api import Done
from penstock.wire.connection import read_params

_START_TIMEOUT_S = 100.0


@contextlib.contextmanager
def agent_process(directory: Path, **settings: object) -> Iterator[Path]:
    """An agent with one CPU slot and no master and ``settings`` (keys of its configuration); its socket."""
    with agent_and_pid(directory, **settings) as (socket, _):
        yield socket


@contextlib.contextmanager
def agent_and_pid(directory: Path, **settings: object) -> Iterator[tuple[Path, int]]:
    """As :func:`agent_process`; the agent's pid, too."""
    environment = os.environ | {
        "PENSTOCK_RUNTIME_DIR": str(directory / "run"),
        "PENSTOCK_STATE_DIR": str(directory / "state"),
    }
    given = {"cores": 1, "http": "127.0.0.1:0"} | settings
    command = [sys.executable, "-m", "agent", "--port-file", str(directory / "ports"), "--log-level", "error"]
    command += [argument for key, value in given.items() for argument in ("--set", f"{key}={value}")]
    (directory / "ports").unlink(missing_ok=True)
    with process(command, directory / "ports", environment) as pid:
        yield directory / "run" / "agent.sock", pid


@contextlib.contextmanager
def process(command: list[str], ready: Path, environment: dict[str, str] | None = None) -> Iterator[int]:
    """A process that is ready when a file of its appears; its pid."""
    started = subprocess.Popen(command, env=environment)
    try:
        give_up = time.monotonic() + _START_TIMEOUT_S
        while not ready.exists():
            if started.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{' '.join(command[1:4])} did not start")
            time.sleep(0.01)
        yield started.pid
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(_START_TIMEOUT_S)


class PriorityMaster:
    """A master that places nothing: it admits every job and, on request, gives jobs other priorities."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self._agent: RpcPeer | None = None
        self._number = 0

    @property
    def linked(self) -> bool:
        """Whether there is an agent."""
        return self._agent is not None and not self._agent.closed

    def set_priorities(self, priorities: dict[str, float]) -> None:
        """Send one decision for all of them."""
        self._decide([master_api.SetPriority(job=job, priority=priority) for job, priority in priorities.items()])

    def _decide(self, decisions: list[Any]) -> None:
        assert self._agent is not None, "the agent has not registered"
        self._number += 1
        self._agent.start_request("decide", master_api.Decide(number=self._number, decisions=decisions))

    def connected(self, peer: RpcPeer) -> None:
        """Called by the peer."""
        self._agent, self._number = peer, 0

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        """Called by the peer."""
        if method == "register":
            self.jobs = [job["job"] for job in read_params(params, dict).get("jobs", ())]
            return master_api.Registered(protocol=master_api.PROTOCOL, version=__version__, heartbeat_s=1.0)
        if method == "job_ended":
            ended = read_params(params, master_api.JobEnded).job
            self.jobs = [job for job in self.jobs if job != ended]  # it comes again after a reconnection
        return Done()

    def notification(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Called by the peer."""
        if method == "job_submitted":
            self.jobs.append(read_params(params, master_api.JobState).job)
            self._decide([master_api.AdmitJob(job=self.jobs[-1])])

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """Called by the peer."""

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Called by the peer."""
        raise error


@contextlib.asynccontextmanager
async def priority_master(listen: Path) -> AsyncIterator[PriorityMaster]:
    """One that listens on this Unix socket, in the caller's loop."""
    master = PriorityMaster()
    server = await asyncio.get_running_loop().create_unix_server(lambda: RpcPeer(master), listen)
    try:
        yield master
    finally:
        server.close()


async def _change_priorities(listen: Path, ready: Path) -> None:
    """Give the agent's jobs priorities in turn, fifty times a second."""
    async with priority_master(listen) as master:
        ready.touch()  # noqa: ASYNC240 - once, before any client waits
        turn = 0
        while True:
            await asyncio.sleep(0.02)
            turn += 1
            if master.jobs and master.linked:
                master.set_priorities({job: float((turn + n) % len(master.jobs)) for n, job in enumerate(master.jobs)})


if __name__ == "__main__":
    asyncio.run(_change_priorities(Path(sys.argv[1]), Path(sys.argv[2])))
