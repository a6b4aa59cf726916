"""An agent of our own on this host, and work in its containers, measured from outside and by its own count."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from agent.cgroup_root import cgroup2_mount, own_cgroup
from penstock.client.blocking import BlockingAgent, BlockingContainer
from penstock.model import ContainerSpec, Ended

WORK = Path(__file__).with_name("work.py")
PYTHON = "/usr/bin/python3"
#: Everything takes ten to thirty times as long under emulation.
TIMEOUT_S = 120.0
_PIPE_BYTES = 1 << 20


class Running(Protocol):
    """The agent's process."""

    def send_signal(self, number: int, /) -> None:
        """As os.kill."""

    def kill(self) -> None:
        """End it."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status."""


class TimedOutError(Exception):
    """The awaited event did not come; the message has the state instead."""


class Work:
    """One workload in a container of its own. The kernel counts its use in ``cgroup``."""

    def __init__(self, container: BlockingContainer, output: int, stdin: int) -> None:
        self.container = container
        self.cgroup = _cgroup_of(container.pid)
        self._output = output
        self._stdin = stdin
        self._rest = b""
        self._lines: list[str] = []
        self._at: list[float] = []
        self._total: list[float] = []
        os.set_blocking(output, False)

    # ------------------------------------------------------------ output of the workload

    def line(self, prefix: str, timeout_s: float = TIMEOUT_S) -> str:
        """Wait for a line of its output that begins so, and take it.

        Raises:
            TimedOutError: none came.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            more = self._drain()
            for number, line in enumerate(self._lines):
                if line.startswith(prefix):
                    return self._lines.pop(number)
            if not more or not select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimedOutError(f"{self.container.id} never said {prefix!r}; it said {self._lines!r}")

    def ready(self) -> Self:
        """Wait until it has begun to count."""
        while len(self._at) < 2:
            if not self._drain() or not select.select([self._output], [], [], TIMEOUT_S)[0]:
                raise TimedOutError(f"{self.container.id} does not begin; it said {self._lines!r}")
        return self

    def tell(self, line: object = "") -> None:
        """Send it a line."""
        os.write(self._stdin, f"{line}\n".encode())

    def total(self, at: float) -> float:
        """By its own count, how much was done at that monotonic time (between two of its lines: in proportion)."""
        self._drain()
        number = bisect.bisect_right(self._at, at)
        if number == 0:
            return 0.0
        if number == len(self._at):
            return self._total[-1]
        before, after = self._at[number - 1], self._at[number]
        share = (at - before) / (after - before)
        return self._total[number - 1] + share * (self._total[number] - self._total[number - 1])

    def windows(self, began: float, ended: float, window_s: float = 1.0) -> list[float]:
        """Return its progress per second, in each whole window of that time."""
        count = int((ended - began) / window_s)
        edges = [self.total(began + number * window_s) for number in range(count + 1)]
        return [(after - before) / window_s for before, after in itertools.pairwise(edges)]

    def _drain(self) -> bool:
        """Read what there is; False once its end was read."""
        with contextlib.suppress(BlockingIOError):
            while True:
                piece = os.read(self._output, 1 << 16)
                if not piece:
                    return False
                *lines, self._rest = (self._rest + piece).split(b"\n")
                for line in map(bytes.decode, lines):
                    self._take(line)
        return True

    def _take(self, line: str) -> None:
        first, _, second = line.partition(" ")
        if first[:1].isdigit():
            self._at.append(float(first))
            self._total.append(float(second))
        else:
            self._lines.append(line)

    # ------------------------------------------------------------ counters of the kernel

    def flat(self, file: str) -> dict[str, int]:
        """A file of ``name number`` lines."""
        pairs = (line.split() for line in (self.cgroup / file).read_text().splitlines())
        return {name: int(value) for name, value in pairs}

    def value(self, file: str) -> int:
        """A file of one number."""
        return int((self.cgroup / file).read_text())

    def charged_cpu_s(self) -> float:
        """CPU time that it was charged, in seconds."""
        return self.flat("cpu.stat")["usage_usec"] / 1e6

    def charged_io(self, device: str, key: str) -> int:
        """Return its charges on a disk (``major:minor``): ``rbytes``, ``wbytes``, ``rios``, ``wios``."""
        for line in (self.cgroup / "io.stat").read_text().splitlines():
            name, *fields = line.split()
            if name == device:
                return int(dict(field.split("=") for field in fields).get(key, 0))
        return 0

    def ended(self) -> Ended:
        """Wait for its end."""
        return self.container.wait()

    def close(self) -> None:
        """Kill it, and wait for that."""
        self.container.kill()
        self.container.wait()
        os.close(self._output)
        os.close(self._stdin)


def when_ready(run: Callable[[dict[str, str]], Running], log: Path) -> Running:
    """Yield the daemon, run with these additions to its environment, once it reports that it is ready.

    Raises:
        TimedOutError: it does not report so.
    """
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = f"\0penstock-bench-{os.getpid()}-{os.urandom(4).hex()}"
    with ready:
        ready.bind(address)
        ready.settimeout(TIMEOUT_S)
        process = run({"NOTIFY_SOCKET": "@" + address[1:]})
        try:
            while b"READY=1" not in ready.recv(4096):
                pass
        except TimeoutError:
            process.kill()
            raise TimedOutError(f"the daemon does not start: {log.read_text()}") from None
    return process


class Bed:
    """``penstock agent`` in directories of its own; settings are its configuration's keys."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self._directory = directory
        values = {
            "node": "bench", "http": "127.0.0.1:0", "runtime_dir": directory / "run", "state_dir": directory / "state",
            **settings,
        }  # fmt: skip
        self._settings = [part for key, value in values.items() for part in ("--set", f"{key}={_toml(value)}")]
        self._agent: BlockingAgent
        self._works: list[Work] = []

    def __enter__(self) -> Self:
        log = self._directory / "agent.log"
        self._process = when_ready(lambda more: self._run(self._settings, {**os.environ, **more}, log), log)
        self._agent = BlockingAgent.connect(self._directory / "run" / "agent.sock", "bench")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
        self._agent.close()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(TIMEOUT_S)

    def _run(self, arguments: list[str], environment: dict[str, str], log: Path) -> Running:
        command = [sys.executable, "-I", "-m", "agent", *arguments]
        with log.open("wb") as said:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def start(self, *command: object, heard: bool = True, **spec: Any) -> Work:
        """Start a workload of work.py in a container; ``spec`` is the rest of a ContainerSpec.

        Its output is dropped unless it is to be ``heard``. Every requested limit must be enforced.
        """
        read_out, out = os.pipe()
        stdin, write_in = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            argv = (PYTHON, "-IS", str(WORK), *map(str, command))
            made = self._agent.launch(ContainerSpec(argv=argv, **spec), (stdin, out if heard else null, 2))
        finally:
            for descriptor in (out, stdin, null):
                os.close(descriptor)
        lacking = made.not_enforced.keys() - {"opportunistic"}  # cpu.idle; the network has classes of its own
        if lacking:
            raise RuntimeError(f"{command}: not enforced: {made.not_enforced}")
        work = Work(made, read_out, write_in)
        self._works.append(work)
        return work

    def status(self) -> dict[str, Any]:
        """The agent's status document."""
        return self._agent.status()

    def shown(self, work: Work) -> dict[str, Any]:
        """Return the container's entry in the status."""
        return next(dict(c) for c in self.status()["containers"] if c["container"] == work.container.id)

    def until(self, condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> float:
        """Look again and again until it holds; the monotonic time at which it did.

        Raises:
            TimedOutError: it did not.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimedOutError(json.dumps({key: self.status()[key] for key in ("preemptions", "events")}))
            time.sleep(0.05)  # between two looks at a status that changes once a sample
        return time.monotonic()

    @contextlib.contextmanager
    def cleared(self) -> Iterator[Self]:
        """End all that is started inside the block."""
        try:
            yield self
        finally:
            self.clear()

    def clear(self) -> None:
        """End all work."""
        works, self._works = self._works, []
        for work in works:
            work.close()


def _cgroup_of(pid: int) -> Path:
    mount = cgroup2_mount()
    assert mount is not None, "no cgroup v2 hierarchy"
    return own_cgroup(mount, Path(f"/proc/{pid}/cgroup"))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else json.dumps(str(value))
