"""An agent and a master in threads of this process, for :mod:`tests.walk.flows`: the daemons' own objects and sockets.

Two things are stand-ins. The file system of cgroups is the fake of the contract tests, because a host may have no
controllers for version 2; and the launcher, a process of its own in any case, starts nothing.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import msgpack
import structlog
import uvloop

from agent.cgroups import CgroupTree, Disk
from agent.config import AgentConfig
from agent.daemon import Agent
from master.config import MasterConfig
from master.daemon import Master
from penstock.config.live_config import LiveConfig
from penstock.config.settings import Loaded
from penstock.transport import shared_peer
from tests.fakes.fake_cgroups import FakeCgroups

T = TypeVar("T")
_TIMEOUT_S = 60.0
_FAKE_ROOT = "/fake/cgroup"
#: No heartbeat and no watch of nodes comes while a flow is recorded, but those that the flow asks for.
_SELDOM_S = 3600.0
_MAX_MESSAGE_BYTES = 1 << 20
MEMORY_BYTES = 1 << 30


class Cgroups(FakeCgroups):
    """The fake file system; ``wrote`` is called after each write with the file's path."""

    def __init__(self) -> None:
        super().__init__(_FAKE_ROOT)
        self.wrote: Callable[[str], object] = lambda path: None

    def write(self, path: bytes, text: str) -> None:
        """Write, and call ``wrote`` with the path."""
        super().write(path, text)
        self.wrote(path.decode())

    def exchange(self, path: bytes, text: str) -> str:
        """Write, read back, and call ``wrote`` with the path."""
        found = super().exchange(path, text)
        self.wrote(path.decode())
        return found


class StandInLauncher:
    """Answers an agent as the launcher does, and starts nothing. ``ends``: each command ends at once."""

    def __init__(self, path: Path) -> None:
        self.ends = False
        self.started: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(path))
        self._listening.listen()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="launcher", daemon=True)
        self._thread.start()

    def end(self, container: str) -> None:
        """Report that a container's command has ended well."""
        self._send({"exited": [container, 0, None, 0.0, 0, time.time()]})

    def close(self) -> None:
        """End, whether an agent has connected or not."""
        for each in filter(None, (self._listening, self._connection)):
            with suppress(OSError):  # the other end has closed it already
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join(_TIMEOUT_S)
        self._listening.close()

    def _serve(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return  # closed: the agent could not be started
        with connection:
            self._connection = connection
            self._send({"hello": _FAKE_ROOT, "instance": "stand-in"})
            while data := self._receive(connection):
                self._answer(msgpack.unpackb(data))

    @staticmethod
    def _receive(connection: socket.socket) -> bytes:
        """Return the next message; descriptors that come with it are closed."""
        try:
            data, descriptors, _, _ = socket.recv_fds(connection, _MAX_MESSAGE_BYTES, 8)
        except ConnectionResetError:
            return b""
        for descriptor in descriptors:
            socket.close(descriptor)
        return data

    def _answer(self, request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request["id"]}
        if request["do"] == "running":
            answer["running"] = []
        elif request["do"] == "start":
            answer["pid"] = 1
        self._send(answer)
        if request["do"] == "start":
            container = request["start"][0]
            self.started.put(container)
            if self.ends:
                self.end(container)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._connection is not None
        self._connection.send(msgpack.packb(message))


class WalkedAgent(Agent):
    """An agent on the fake file system, without a network of its own to limit."""

    def __init__(self, config: AgentConfig, cgroups: Cgroups) -> None:
        loaded = Loaded(config, {})
        super().__init__(LiveConfig(loaded, lambda: loaded))
        self._cgroups = cgroups

    def _prepare_tree(self, root: Path | None) -> CgroupTree:
        assert root is not None
        tree = CgroupTree(root, [Disk("vda", 254, 0)], self._cgroups)
        assert not tree.prepare()
        return tree

    def _limit_network(self) -> None:
        return None

    async def keep_link(self) -> None:
        """Start the link to the master, which :meth:`Agent.serve` starts otherwise."""
        assert self._link is not None
        self._linking = asyncio.ensure_future(self._link.run())

    async def sample(self) -> None:
        """Take one sample and decide on it, as the agent does every second, once ended commands are cleared away."""
        await self._executor.settle()
        await self._periodic()._sample()

    async def report(self) -> None:
        """Send a heartbeat, as the agent does every second, instead of one that is due soon."""
        assert self._link is not None
        self._link.send_heartbeat()

    async def settle(self) -> None:
        """Finish the remaining work for closed connections and ended commands."""
        while self._shell.peers:  # noqa: ASYNC110 - the end of a connection is an event of the agent alone
            await asyncio.sleep(0)
        await self._executor.settle()

    async def close(self) -> None:
        """Close everything."""
        if self._link is not None:
            self._linking.cancel()
        await super().close()


class Host:
    """A running agent, perhaps with a master; made by :func:`host`."""

    def __init__(self, socket_path: Path, agent: WalkedAgent, agent_loop: Loop, launcher: StandInLauncher) -> None:
        self.socket = socket_path
        self.agent = agent
        self.agent_loop = agent_loop
        self.launcher = launcher
        self.cgroups = agent._cgroups


class Loop:
    """An event loop in a thread, named after the daemon that it runs."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    def close(self) -> None:
        """End the thread."""
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_S)
        self._loop.close()


@contextmanager
def host(directory: Path, *, has_master: bool = False) -> Iterator[Host]:
    """Start an agent, and a master if wanted, with their files in ``directory``."""
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        # Traced code is slower. A client at the end of its turn would have to wait for the next one.
        stack.enter_context(mock.patch.object(shared_peer, "TURN_S", _SELDOM_S))
        master = ""
        if has_master:
            master = _start_master(directory, stack)
        runtime = directory / "run"
        runtime.mkdir(mode=0o755)
        config = AgentConfig(
            node="walked", master=master, http="127.0.0.1:0", runtime_dir=str(runtime),
            state_dir=str(directory / "state"), spawn_launcher=False, cores=2.0, memory_bytes=MEMORY_BYTES,
        )  # fmt: skip
        launcher = StandInLauncher(runtime / "launcher.sock")
        stack.callback(launcher.close)
        loop = Loop("agent")
        stack.callback(loop.close)
        agent = loop.run(_started_agent(config))
        stack.callback(lambda: loop.run(agent.close()))
        if has_master:
            loop.run(agent.keep_link())
        yield Host(config.socket_path(), agent, loop, launcher)


async def _started_agent(config: AgentConfig) -> WalkedAgent:
    agent = WalkedAgent(config, Cgroups())
    await agent.start()
    return agent


def _start_master(directory: Path, stack: ExitStack) -> str:
    """Start a master; return its address."""
    config = MasterConfig(
        listen=str(directory / "master.sock"), http="127.0.0.1:0", store=str(directory / "store.db"), interval_s=0.01,
        gather_s=0.0, heartbeat_s=_SELDOM_S, node_timeout_s=2 * _SELDOM_S,
    )  # fmt: skip
    loop = Loop("master")
    stack.callback(loop.close)
    master = loop.run(_started_master(config))
    stack.callback(lambda: loop.run(master.close()))
    return master.service.address


async def _started_master(config: MasterConfig) -> Master:
    master = Master(config)
    await master.start()
    return master


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop the daemons' log lines."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
