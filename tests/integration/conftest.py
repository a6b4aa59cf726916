"""Daemons started for real, on loopback, in directories of their own. Readiness comes by sd_notify: nobody polls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from penstock.transport import RpcPeer, connect_unix
from penstock.wire.agent_api import Welcome
from tests.integration.warm import Forked, run

START_TIMEOUT_S = 100


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
) -> Daemon:
    """Start it and wait until it says READY=1. ``program``: by another installation's command."""
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
    """Starts agents in one directory; whatever still runs at the end is stopped, its launcher and containers too."""
    started: list[Daemon] = []
    runtimes: set[Path] = set()

    def make(
        *options: str, environment: dict[str, str] | None = None, imports_anew: bool = False, **settings: object
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
        arguments = [*options, *(part for key, value in values.items() for part in ("--set", f"{key}={_toml(value)}"))]
        runtimes.add(Path(str(values["runtime_dir"])))
        daemon = start("agent", directory, *arguments, environment=environment, imports_anew=imports_anew)
        started.append(daemon)
        return daemon

    directory.chmod(0o755)
    yield make
    for daemon in started:
        if daemon.process.poll() is None:
            assert daemon.stop() == 0, daemon.log.read_text()
    for runtime in runtimes:
        end_launcher(runtime)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def end_launcher(runtime: Path) -> None:
    """A launcher that outlived its agents on purpose ends with the test, with all that it runs."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"agent.launcher" in command and str(runtime).encode() in command:
            gone = os.pidfd_open(int(entry.name))
            os.kill(int(entry.name), signal.SIGTERM)
            assert select.select([gone], [], [], 30)[0], "the launcher did not end"
            os.close(gone)


class MasterProcess:
    """A master that keeps its address and its store over restarts."""

    def __init__(self, directory: Path, *, node_timeout_s: float = 30.0) -> None:
        self._node_timeout_s = node_timeout_s
        self.listen = str(directory / "master.sock")
        self.directory = directory
        self.daemon: Daemon | None = None

    @property
    def http(self) -> str:
        """Where its pages are."""
        return self.running.addresses["http"]

    @property
    def running(self) -> Daemon:
        """The process that was started last."""
        assert self.daemon is not None
        return self.daemon

    def start(self) -> None:
        store, timeout = self.directory / "master.db", f"node_timeout_s={self._node_timeout_s}"
        settings = (f"listen={self.listen}", "http=127.0.0.1:0", timeout, f"store={store}")
        self.daemon = start("master", self.directory, *(part for text in settings for part in ("--set", text)))
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
def start_master(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts a master with settings of the test's; it must end cleanly with the test."""
    started: list[Daemon] = []

    def make(**settings: object) -> Daemon:
        values = {"http": "127.0.0.1:0", "store": tmp_path / "kept.db", **settings}
        arguments = [part for key, value in values.items() for part in ("--set", f"{key}={_toml(value)}")]
        started.append(start("master", tmp_path, *arguments))
        return started[-1]

    yield make
    for daemon in started:
        assert daemon.stop() == 0, daemon.log.read_text()


async def agents(
    start_agent: Callable[..., Daemon], master: MasterProcess, tmp_path: Path, *names: str, **settings: object
) -> list[Any]:
    started = []
    for name in names:
        more = {"runtime_dir": tmp_path / name / "run", "state_dir": tmp_path / name / "state"}
        (tmp_path / name).mkdir()
        started.append(await asyncio.to_thread(start_agent, node=name, master=master.listen, **more, **settings))
    return started


def command(name: str, *argv: str, **more: Any) -> TaskRequest:
    spec = ContainerSpec(argv=argv, cwd="/")
    return TaskRequest(task=name, usage=KindAmounts(cpu=1e6), memory_bytes=10_000_000, command=spec, **more)


class Recorder:
    """A handler that keeps what came, and lets a test wait for it."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Any]] = []
        self._fresh = asyncio.Event()
        self.gone = asyncio.Event()

    def connected(self, peer: RpcPeer) -> None:
        pass

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        raise AssertionError(f"an agent does not call its client: {method}")

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        self.received.append((method, params[0] if params else {}))
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
    """Connects and says hello."""
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
