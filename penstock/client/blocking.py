"""The client for threads: the objects of :mod:`penstock.client`, driven by an event loop in a background thread.

Every method may be called from any thread and blocks until the answer has come. Arguments, results and errors are those
of the method of the same name in :mod:`penstock.client`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from penstock.client.agent import AgentClient
from penstock.client.container import Container
from penstock.client.job import Job
from penstock.client.monotask import Monotask
from penstock.model.resources import ResourceKind
from penstock.wire.agent_api import Welcome

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result; an interrupted wait (Ctrl-C) cancels the coroutine."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # no effect on a finished future

    def post(self, event: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop; do not wait for it."""
        self._loop.call_soon_threadsafe(event, *arguments)

    def stop(self) -> None:
        """Stop the loop and join the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Face(Generic[A_co]):
    """An object of :mod:`penstock.client` for threads."""

    def __init__(self, loop: LoopThread, of: A_co) -> None:
        self._loop = loop
        self._of = of


def _blocking(
    method: Callable[Concatenate[A_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[A_co], P], T]:
    """Return the blocking form of a method."""

    @functools.wraps(method)
    def blocking(self: _Face[A_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._of, *args, **kwargs))

    return blocking


def _making(
    face: Callable[[LoopThread, T], A], method: Callable[Concatenate[AgentClient, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[_Face[AgentClient], P], A]:
    """Return the blocking form of a method whose result gets a ``face``."""

    @functools.wraps(method)
    def making(self: _Face[AgentClient], /, *args: P.args, **kwargs: P.kwargs) -> A:
        return face(self._loop, self._loop.run(method(self._of, *args, **kwargs)))

    return making


class BlockingContainer(_Face[Container]):
    """See :class:`penstock.client.Container`."""

    wait = _blocking(Container.wait)
    signal = _blocking(Container.signal)
    kill = _blocking(Container.kill)
    resize = _blocking(Container.resize)
    follow = _blocking(Container.follow)
    output = _blocking(Container.output)

    @property
    def id(self) -> str:
        """The container's id."""
        return self._of.id

    @property
    def pid(self) -> int:
        """The pid of the first process; 0 after :meth:`BlockingAgent.attach`."""
        return self._of.pid

    @property
    def not_enforced(self) -> dict[str, str]:
        """The requested limits that this host cannot enforce, each with the reason and the remedy."""
        return self._of.not_enforced


class BlockingJob(_Face[Job]):
    """See :class:`penstock.client.Job`."""

    admitted = _blocking(Job.admitted)
    place = _blocking(Job.place)
    placed = _blocking(Job.placed)
    ended = _blocking(Job.ended)
    tasks_done = _blocking(Job.tasks_done)
    cancel_tasks = _blocking(Job.cancel_tasks)
    end = _blocking(Job.end)

    @property
    def id(self) -> str:
        """The job's id; a restarted agent may give it another."""
        return self._of.id

    @contextlib.contextmanager
    def monotask(
        self, kind: ResourceKind | str, input_bytes: int, stage: str = "", task: str = ""
    ) -> Iterator[Monotask]:
        """Wait for the grant, run the body, complete the monotask (as failed if the body raised)."""
        granted = self._loop.run(self._granted(kind, input_bytes, stage, task))
        failed: type[BaseException] | None = BaseException
        try:
            yield granted
            failed = None
        finally:
            self._loop.run(granted.__aexit__(failed))

    async def _granted(self, kind: ResourceKind | str, input_bytes: int, stage: str, task: str) -> Monotask:
        return await self._of.monotask(kind, input_bytes, stage, task).__aenter__()


class BlockingAgent(_Face[AgentClient]):
    """See :class:`penstock.client.AgentClient`."""

    register_job = _making(BlockingJob, AgentClient.register_job)
    launch = _making(BlockingContainer, AgentClient.launch)
    adopt = _making(BlockingContainer, AgentClient.adopt)
    attach = _making(BlockingContainer, AgentClient.attach)
    status = _blocking(AgentClient.status)

    @classmethod
    def connect(cls, socket: Path | None = None, client_name: str = "python", reconnect_s: float = 30.0) -> Self:
        """See :meth:`penstock.client.AgentClient.connect`."""
        loop = LoopThread("penstock-client")
        try:
            return cls(loop, loop.run(AgentClient.connect(socket, client_name, reconnect_s)))
        except BaseException:
            loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def welcome(self) -> Welcome:
        """The agent's greeting."""
        return self._of.welcome

    def close(self) -> None:
        """Close the connection and end the background thread."""
        try:
            self._loop.run(self._of.close())
        finally:
            self._loop.stop()
