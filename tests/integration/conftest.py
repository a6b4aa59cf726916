"""Daemons started for real, on loopback, in directories of their own. Readiness comes by sd_notify, without polling."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from penstock.transport import RpcPeer, connect_unix
from penstock.wire.agent_api import Welcome
from penstock.wire.connection import read_params
from tests import warm_commands
from tests.fakes.master import FakeMaster
from tests.integration.warm import Forked, run

START_TIMEOUT_S = 100
#: The time that suffices even on a busy host.
LIMIT_S = 150.0

T = TypeVar("T")


@dataclass
class Daemon:
    """A daemon process of ours, and where it answers."""

    process: subprocess.Popen[bytes] | Forked
    directory: Path
    arguments: list[str]
    log: Path
    addresses: dict[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return Path(self.addresses["socket"])

    def get(self, path: str, timeout_s: float = 60.0) -> bytes:
        with urllib.request.urlopen(f"http://{self.addresses['http']}{path}", timeout=timeout_s) as answer:
            return bytes(answer.read())

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/status")))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def start(
    module: str,
    directory: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    imports_anew: bool = False,
    program: Path | None = None,
    **settings: Any,
) -> Daemon:
    """Start it and wait until it sends READY=1. ``program``: by another installation's command."""
    arguments = (*arguments, *options(**settings))
    log = directory / f"{module}.log"
    ports = directory / f"{module}.json"
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with notify:
        address = f"\0penstock-test-{os.getpid()}-{os.urandom(6).hex()}"
        notify.bind(address)
        command = ["--port-file", str(ports), *arguments]
        own = {"PENSTOCK_STATE_DIR": str(directory / f"{module}-state")}
        if module == "master":
            own["PENSTOCK_MASTER_LISTEN"] = str(directory / "master.sock")
        around = {**os.environ, **own, **(environment or {}), "NOTIFY_SOCKET": "@" + address[1:]}
        process = run(module, command, around, log, imports_anew=imports_anew, program=program)
        daemon = Daemon(process, directory, list(arguments), log)
        if not _is_ready(notify, process):
            process.kill()
            pytest.fail(f"{module} did not start:\n{log.read_text()}")
    daemon.addresses = json.loads(ports.read_text())
    return daemon


def options(**settings: Any) -> list[str]:
    """A daemon's settings as ``--set KEY=VALUE``."""
    written = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
    return [part for key, value in written.items() for part in ("--set", f"{key}={value}")]


def _is_ready(notify: socket.socket, process: subprocess.Popen[bytes] | Forked) -> bool:
    """Wait for READY=1; False where the process ends before, or START_TIMEOUT_S is over."""
    ended = os.pidfd_open(process.pid)
    try:
        while True:
            readable = select.select([notify, ended], [], [], START_TIMEOUT_S)[0]
            if notify not in readable:
                return False
            if b"READY=1" in notify.recv(4096):
                return True
    finally:
        os.close(ended)


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts agents for one test."""
    with agents_in(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def start_shared_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Daemon]]:
    """Starts agents for all tests of a file."""
    with agents_in(tmp_path_factory.mktemp("shared")) as make:
        yield make


@contextlib.contextmanager
def agents_in(directory: Path) -> Iterator[Callable[..., Daemon]]:
    """Start agents in one directory; all that still runs at the end is stopped, its launcher and containers too."""
    started: list[Daemon] = []
    runtimes: set[Path] = set()

    def make(
        *arguments: str, environment: dict[str, str] | None = None, imports_anew: bool = False, **settings: Any
    ) -> Daemon:
        values = {
            "node": "test",
            "http": "127.0.0.1:0",
            "runtime_dir": directory / "run",
            "state_dir": directory / "state",
            "cores": 2,
            "memory_bytes": 2**30,
            "sample_interval_s": 0.2,
            **settings,
        }
        runtimes.add(Path(str(values["runtime_dir"])))
        daemon = start("agent", directory, *arguments, environment=environment, imports_anew=imports_anew, **values)
        started.append(daemon)
        return daemon

    directory.chmod(0o755)
    try:
        yield make
    finally:
        for daemon in started:
            if daemon.process.poll() is None:
                assert daemon.stop() == 0, daemon.log.read_text()
        for runtime in runtimes:
            end_launcher(runtime)


def end_launcher(runtime: Path) -> None:
    """A launcher that outlived its agents on purpose ends with the test, with all that it runs."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if b"agent.launcher" in command and str(runtime).encode() in command:
                os.kill(int(entry.name), signal.SIGTERM)
                assert has_ended(int(entry.name)), "the launcher did not end"


def has_ended(pid: int) -> bool:
    """Wait for half a minute for a process, whosever child it is; return whether it has ended, reaped or not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], 30)[0])
    finally:
        os.close(pidfd)


def until(condition: Callable[[], T | None], what: str = "it does not come true") -> T:
    """Poll, as no event marks the change, and return the first result that is true."""
    give_up = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < give_up, what
        time.sleep(0.02)
    return found


def penstock(
    agent: Daemon, *argv: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command on an agent's host."""
    around = {**os.environ, "PENSTOCK_SOCKET": str(agent.socket), **environment}
    command = [warm_commands.penstock(), *argv]
    return subprocess.run(command, cwd=cwd, env=around, capture_output=True, text=True, check=False, timeout=LIMIT_S)


class MasterProcess:
    """A master that keeps its address and its store over restarts."""

    def __init__(self, directory: Path, *, node_timeout_s: float = 30.0) -> None:
        self._node_timeout_s = node_timeout_s
        self.listen = str(directory / "master.sock")
        self.directory = directory
        self.daemon: Daemon | None = None

    @property
    def running(self) -> Daemon:
        """The process that was started last."""
        assert self.daemon is not None
        return self.daemon

    def start(self) -> None:
        self.daemon = start(
            "master", self.directory, listen=self.listen, http="127.0.0.1:0", node_timeout_s=self._node_timeout_s,
            store=self.directory / "master.db",
        )  # fmt: skip
        assert self.running.addresses["listen"] == self.listen

    def kill(self) -> None:
        self.running.kill()

    def stop(self) -> int:
        return self.running.stop()

    def status(self) -> dict[str, Any]:
        return self.running.status()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MasterProcess]:
    running = MasterProcess(tmp_path)
    running.start()
    yield running
    assert running.stop() == 0, running.running.log.read_text()


@pytest.fixture
async def fake_master(tmp_path: Path) -> AsyncIterator[FakeMaster]:
    running = FakeMaster(tmp_path)
    await running.start()
    yield running
    await running.close()


@pytest.fixture
def start_master(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts masters with settings of the test's."""
    with masters_in(tmp_path) as make:
        yield make


@contextlib.contextmanager
def masters_in(directory: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts masters in one directory; at the end each must stop cleanly."""
    started: list[Daemon] = []

    def make(*arguments: str, **settings: Any) -> Daemon:
        values = {"http": "127.0.0.1:0", "store": directory / "kept.db", **settings}
        started.append(start("master", directory, *arguments, **values))
        return started[-1]

    try:
        yield make
    finally:
        for daemon in started:
            assert daemon.stop() == 0, daemon.log.read_text()


async def agents(
    start_agent: Callable[..., Daemon], master: MasterProcess, tmp_path: Path, *names: str, **settings: Any
) -> list[Any]:
    """Start the agents of these nodes, or their successors, each with directories of its own."""
    started = []
    for name in names:
        more = {"runtime_dir": tmp_path / name / "run", "state_dir": tmp_path / name / "state"}
        (tmp_path / name).mkdir(exist_ok=True)
        started.append(await asyncio.to_thread(start_agent, node=name, master=master.listen, **more, **settings))
    return started


def command(name: str, *argv: str, **more: Any) -> TaskRequest:
    spec = ContainerSpec(argv=argv, cwd="/")
    return TaskRequest(task=name, usage=KindAmounts(cpu=1e6), memory_bytes=10_000_000, command=spec, **more)


class Recorder:
    """A handler that keeps its calls, and lets a test wait for them."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Any]] = []
        self._fresh = asyncio.Event()
        self.gone = asyncio.Event()

    def connected(self, peer: RpcPeer) -> None:
        pass

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        raise AssertionError(f"an agent does not call its client: {method}")

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        self.received.append((method, read_params(params, dict)))
        self._fresh.set()

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        self.gone.set()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        raise error

    async def wait_for(self, method: str, count: int = 1) -> list[Any]:
        """The parameters of the first ``count`` notifications of a method."""
        async with asyncio.timeout(30):
            while True:
                found = [params for name, params in self.received if name == method]
                if len(found) >= count:
                    return found[:count]
                self._fresh.clear()
                await self._fresh.wait()


@dataclass
class Client:
    """A raw connection: no client library between the test and the wire."""

    peer: RpcPeer
    recorder: Recorder

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        return await self.peer.request(method, params, dict)


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[Daemon], Any]]:
    """Connect and send the hello."""
    peers: list[RpcPeer] = []

    async def make(daemon: Daemon, hello: bool = True) -> Client:
        recorder = Recorder()
        peer = await connect_unix(str(daemon.socket), recorder)
        peers.append(peer)
        if hello:
            await peer.request("hello", {"protocol": 1, "client": "test"}, Welcome)
        return Client(peer, recorder)

    yield make
    for peer in peers:
        peer.close()
