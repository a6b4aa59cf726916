"""The client for threads: the objects of :mod:`penstock.client`, driven by an event loop in a background thread.

Every method may be called from any thread and blocks until the answer has come. Errors are those of
:mod:`penstock.client`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock import client
from penstock.model.container import ContainerSpec, Ended, Limits
from penstock.model.profile import Profile
from penstock.model.resources import ResourceKind
from penstock.model.work import Opportunistic, OpportunisticJob, TaskRequest
from penstock.wire.agent_api import Welcome

T = TypeVar("T")


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result; an interrupted wait (Ctrl-C) cancels the coroutine."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # no effect on a finished future

    def stop(self) -> None:
        """Stop the loop and join the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingContainer:
    """See :class:`penstock.client.Container`."""

    def __init__(self, loop: _Loop, container: client.Container) -> None:
        self._loop = loop
        self._container = container
        self.id = container.id
        self.pid = container.pid
        self.not_enforced = container.not_enforced

    def wait(self) -> Ended:
        """Wait for the end and return its cause."""
        return self._loop.run(self._container.wait())

    def signal(self, number: int) -> None:
        """Send a signal to the container's first process and its process group."""
        self._loop.run(self._container.signal(number))

    def kill(self) -> None:
        """Kill all processes in the container."""
        self._loop.run(self._container.kill())

    def resize(self, *, strict: bool = False, **limits: float | str | None) -> Limits:
        """Change limits by name; None removes a limit. With ``strict``, fail unless all can be enforced."""
        changed = self._loop.run(self._container.resize(strict=strict, **limits))
        self.not_enforced = self._container.not_enforced
        return changed

    def follow(self, profile: Profile | None, *, strict: bool = False) -> None:
        """Make the limits follow a profile from now on, or stop that (None). ``strict``: fail unless enforceable."""
        self._loop.run(self._container.follow(profile, strict=strict))

    def output(self, stream: str = "stdout") -> bytes:
        """Return the output so far."""
        return self._loop.run(self._container.output(stream))


class BlockingJob:
    """See :class:`penstock.client.Job`."""

    def __init__(self, loop: _Loop, job: client.Job) -> None:
        self._loop = loop
        self._job = job

    @property
    def id(self) -> str:
        """The job's id; a restarted agent may give it another."""
        return self._job.id

    def admitted(self) -> None:
        """Wait until the master has memory for the job."""
        self._loop.run(self._job.admitted())

    @contextlib.contextmanager
    def monotask(
        self, kind: ResourceKind | str, input_bytes: int, stage: str = "", task: str = ""
    ) -> Iterator[client.Monotask]:
        """Wait for the grant, run the body, complete the monotask (as failed if the body raised)."""
        granted = self._loop.run(self._granted(kind, input_bytes, stage, task))
        failed = True
        try:
            yield granted
            failed = False
        finally:
            self._loop.run(self._complete(granted, failed=failed))

    def place(self, stage: str, tasks: Sequence[TaskRequest], opportunistic: Opportunistic = False) -> None:
        """Ask for nodes for the ready tasks of a stage."""
        self._loop.run(self._job.place(stage, tasks, opportunistic))

    def placed(self, task: str) -> str:
        """Wait for a task's placement and return its node."""
        return self._loop.run(self._job.placed(task))

    def ended(self, task: str) -> Ended:
        """Wait for a task's end and return its cause."""
        return self._loop.run(self._job.ended(task))

    def tasks_done(self, tasks: Sequence[str]) -> None:
        """Report tasks that the framework itself has executed."""
        self._loop.run(self._job.tasks_done(tasks))

    def cancel_tasks(self, tasks: Sequence[str]) -> None:
        """Cancel tasks."""
        self._loop.run(self._job.cancel_tasks(tasks))

    def end(self) -> None:
        """End the job."""
        self._loop.run(self._job.end())

    async def _granted(self, kind: ResourceKind | str, input_bytes: int, stage: str, task: str) -> client.Monotask:
        monotask = self._job.submit(kind, input_bytes, stage, task)
        try:
            await monotask.granted
        except BaseException:
            monotask.cancel()
            raise
        return monotask

    @staticmethod
    async def _complete(monotask: client.Monotask, *, failed: bool) -> None:
        monotask.complete(failed)


class BlockingAgent:
    """See :class:`penstock.client.AgentClient`."""

    def __init__(self, loop: _Loop, agent: client.AgentClient) -> None:
        self._loop = loop
        self._agent = agent

    @classmethod
    def connect(cls, socket: Path | None = None, client_name: str = "python", reconnect_s: float = 30.0) -> Self:
        """Connect to the agent of this host.

        Raises:
            AgentUnavailable: there is no usable agent; the message is one line with the cause and the remedy.
        """
        loop = _Loop()
        try:
            agent = loop.run(client.AgentClient.connect(socket, client_name, reconnect_s))
        except BaseException:
            loop.stop()
            raise
        return cls(loop, agent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def welcome(self) -> Welcome:
        """The agent's greeting."""
        return self._agent.welcome

    def register_job(
        self,
        name: str,
        memory_bytes: int = 0,
        priority: float = 0.0,
        job: str = "",
        opportunistic: OpportunisticJob = None,
    ) -> BlockingJob:
        """Register a job, or join the job with id ``job``."""
        registered = self._agent.register_job(name, memory_bytes, priority, job, opportunistic)
        return BlockingJob(self._loop, self._loop.run(registered))

    def launch(self, spec: ContainerSpec, stdio: tuple[int, int, int] | None = None) -> BlockingContainer:
        """Start a command in a container on this host."""
        return BlockingContainer(self._loop, self._loop.run(self._agent.launch(spec, stdio)))

    def adopt(self, pid: int, spec: ContainerSpec, *, tree: bool = False) -> BlockingContainer:
        """Move a running process of this user into a container."""
        return BlockingContainer(self._loop, self._loop.run(self._agent.adopt(pid, spec, tree=tree)))

    def attach(self, container: str) -> BlockingContainer:
        """Return an existing container."""
        return BlockingContainer(self._loop, self._loop.run(self._agent.attach(container)))

    def status(self) -> dict[str, Any]:
        """Return the agent's status document."""
        return self._loop.run(self._agent.status())

    def close(self) -> None:
        """Close the connection and end the background thread."""
        try:
            self._loop.run(self._agent.close())
        finally:
            self._loop.stop()
