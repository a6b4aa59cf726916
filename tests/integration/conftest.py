"""Daemons started for real, on loopback, in directories of their own. Readiness comes by sd_notify: nobody polls."""

from __future__ import annotations

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

    def get(self, path: str, timeout_s: float = 10.0) -> bytes:
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
) -> Daemon:
    """Start it and wait until it says READY=1."""
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
        process = run(module, command, around, log, imports_anew=imports_anew)
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
    """Starts agents in one directory; whatever still runs at the end is stopped, its launcher and containers too."""
    started: list[Daemon] = []
    runtimes: set[Path] = set()

    def make(
        *options: str, environment: dict[str, str] | None = None, imports_anew: bool = False, **settings: object
    ) -> Daemon:
        values = {
            "node": "test",
            "http": "127.0.0.1:0",
            "runtime_dir": tmp_path / "run",
            "state_dir": tmp_path / "state",
            "cores": 2,
            "memory_bytes": 2**30,
            "sample_interval_s": 0.2,
            **settings,
        }
        arguments = [*options, *(part for key, value in values.items() for part in ("--set", f"{key}={_toml(value)}"))]
        runtimes.add(Path(str(values["runtime_dir"])))
        daemon = start("agent", tmp_path, *arguments, environment=environment, imports_anew=imports_anew)
        started.append(daemon)
        return daemon

    tmp_path.chmod(0o755)
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


class Recorder:
    """A handler that keeps what came, and lets a test wait for it."""

    def __init__(self) -> None:
        import asyncio

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
        import asyncio

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
