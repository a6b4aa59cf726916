"""A Dask cluster whose workers run in containers of the agent, each gated, with promises and limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import dask.config
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface, SpecCluster
from distributed.scheduler import Scheduler

from penstock.client import AgentClient, AgentUnavailable, Container
from penstock.engines.dask.jobs import program_of
from penstock.model.container import ContainerSpec, Limits
from penstock.wire.errors import RpcError
from penstock.wire.utf8 import sendable

_LOG = logging.getLogger(__name__)

PRELOAD = "penstock.engines.dask.preload"
#: A worker has this long to end after SIGTERM (seconds).
_END_S = 15.0
#: Memory of the nanny and the interpreter, in addition to the worker's own limit, at which Dask spills or restarts it.
_BESIDE_BYTES = 192 * 2**20


def worker_command(scheduler: str, *arguments: str) -> tuple[str, ...]:
    """Return the command line of a Dask worker that is gated from its start."""
    return (sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--preload", PRELOAD, *arguments)


class ContainedWorker(ProcessInterface):
    """A Dask worker and its nanny, in a container of this host's agent."""

    def __init__(
        self,
        scheduler: str,
        name: object = None,
        *,
        threads: int = 1,
        cpu_cores: float = 0.0,
        memory_bytes: int = 0,
        socket: Path | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        """``cpu_cores`` and ``memory_bytes`` are both promise and limit; 0: neither.

        Raises:
            ValueError: ``memory_bytes`` is too small for any worker.
            RpcError: an argument or this process's directory is not UTF-8.
        """
        if 0 < memory_bytes <= 2 * _BESIDE_BYTES:
            raise ValueError(f"memory_bytes={memory_bytes} is too little for a Dask worker and its nanny")
        super().__init__(scheduler=scheduler, name=name)  # type: ignore[no-untyped-call]
        limit_bytes = memory_bytes - _BESIDE_BYTES if memory_bytes else 0
        options = ("--name", str(name), "--nthreads", str(threads), "--no-dashboard")
        limit = ("--memory-limit", str(limit_bytes)) if limit_bytes else ()
        told = {"DASK_PENSTOCK__SOCKET": str(socket)} if socket is not None else {}
        if job := dask.config.get("penstock.job", "") or program_of():
            told["DASK_PENSTOCK__JOB"] = repr(job)  # Dask reads values as Python's literals
        spec = ContainerSpec(
            argv=worker_command(scheduler, *options, *limit, *arguments),
            name=f"dask-worker {name}",
            env=dict(os.environ) | told,
            cwd=str(Path.cwd()),
            cpu_cores=cpu_cores,
            memory_bytes=memory_bytes,
            limits=Limits(cpu_cores=cpu_cores or None, memory_max_bytes=memory_bytes or None),
        )
        self.spec, left_out = sendable(spec)
        if left_out:
            _LOG.warning("%s", left_out)
        self._socket = socket
        self._client: AgentClient | None = None
        self._container: Container | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Called by the cluster: start the worker.

        Raises:
            AgentUnavailable: there is no agent.
            RpcError: the agent refused the worker; the message has the reason.
        """
        client = self._client = await AgentClient.connect(self._socket, client="dask")
        try:
            self._container = await client.launch(self.spec)
        except BaseException:
            await client.close()
            raise
        self._watching = asyncio.create_task(self._watch(self._container))
        await super().start()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Called by the cluster: end the worker, first with SIGTERM."""
        container, self._container = self._container, None
        if container is not None:
            with contextlib.suppress(AgentUnavailable, RpcError):  # it has ended already
                try:
                    await container.signal(signal.SIGTERM)
                    await asyncio.wait_for(container.wait(), _END_S)
                except TimeoutError:
                    await container.kill()
                    await container.wait()
        if self._watching is not None:
            self._watching.cancel()
        if self._client is not None:
            await self._client.close()
        await super().close()  # type: ignore[no-untyped-call]

    async def _watch(self, container: Container) -> None:
        """Update the status when the container ends by itself."""
        with contextlib.suppress(AgentUnavailable):
            await container.wait()
            if self.status == Status.running:
                self.status = Status.closed


class PenstockCluster(SpecCluster):
    """``PenstockCluster(n_workers=2, cpu_cores=1, memory_bytes=2**30)``: a scheduler here, workers in containers.

    Everything in ``distributed.SpecCluster`` works: ``scale``, ``adapt``, ``async with``, ``Client(cluster)``.
    """

    def __init__(
        self,
        n_workers: int = 1,
        *,
        threads_per_worker: int = 1,
        cpu_cores: float = 0.0,
        memory_bytes: int = 0,
        socket: Path | None = None,
        worker_arguments: tuple[str, ...] = (),
        scheduler_options: dict[str, Any] | None = None,
        **cluster: Any,
    ) -> None:
        """``cpu_cores`` and ``memory_bytes`` are for each worker; ``cluster`` is passed to ``SpecCluster``."""
        worker = {
            "cls": ContainedWorker,
            "options": {
                "threads": threads_per_worker,
                "cpu_cores": cpu_cores,
                "memory_bytes": memory_bytes,
                "socket": socket,
                "arguments": worker_arguments,
            },
        }
        options = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"} | (
            scheduler_options or {}
        )
        super().__init__(  # type: ignore[no-untyped-call]
            workers=dict.fromkeys(range(n_workers), worker),
            scheduler={"cls": Scheduler, "options": options},
            worker=worker,
            **cluster,
        )
