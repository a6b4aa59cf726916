"""The examples of docs/integrate.md against a real agent. Work that reads a FIFO goes on until the test writes it."""

from __future__ import annotations

import ast
import contextlib
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import until

_ROOT = Path(__file__).resolve().parents[2]
_EXAMPLES = _ROOT / "examples"
_TIMEOUT_S = 60.0
Start = Callable[..., Any]
Run = Callable[..., "subprocess.Popen[str]"]


class Fifo:
    """A file whose reader blocks until the test has written it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._writer: int | None = None

    def open(self) -> bool:
        """Return whether a process reads it."""
        if self._writer is None:
            try:
                self._writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # ENXIO: no reader
                return False
        return True

    def finish(self, text: str = "two words") -> None:
        """Let the reader have this, and the end of the file."""
        assert self._writer is not None
        os.write(self._writer, text.encode())
        self.close()

    def reader_gone(self) -> bool:
        """Wait until its reader has ended."""
        assert self._writer is not None
        poll = select.poll()
        poll.register(self._writer, select.POLLERR)
        return bool(poll.poll(_TIMEOUT_S * 1000))

    def close(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None


@pytest.fixture
def fifos(tmp_path: Path) -> Iterator[list[Fifo]]:
    made = [Fifo(tmp_path / f"fifo-{index}") for index in range(8)]
    yield made
    for fifo in made:
        fifo.close()


@pytest.fixture
def run() -> Iterator[Run]:
    """Start commands in sessions of their own, and end their remaining processes."""
    started: list[subprocess.Popen[str]] = []

    def make(*command: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield make
    for process in started:
        with process, contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def cpu(agent: Any) -> tuple[int, int]:
    """CPU monotasks that hold a slot, and that wait for one."""
    counts = agent.status()["kinds"]["cpu"]
    return counts["running"], counts["queued"]


def reading(fifos: list[Fifo], count: int) -> list[Fifo]:
    """Those that are being read, once there are so many."""

    def found() -> list[Fifo] | None:
        opened = [fifo for fifo in fifos if fifo.open()]
        return opened if len(opened) >= count else None

    return until(found, f"{count} of the files are read")


# ---------------------------------------------------------------- a pool of processes


def pool(run: Run, socket: Path, fifos: list[Fifo]) -> subprocess.Popen[str]:
    return run(sys.executable, _EXAMPLES / "pool.py", socket, *(fifo.path for fifo in fifos))


def test_a_pool_never_works_on_more_than_there_are_slots(start_agent: Start, run: Run, fifos: list[Fifo]) -> None:
    agent = start_agent(cores=2)
    files = fifos[:4]
    process = pool(run, agent.socket, files)
    until(lambda: cpu(agent) == (2, 2), "two work, two wait")
    (job,) = agent.status()["jobs"]
    assert (job["name"], job["running"], job["queued"], job["connections"]) == ("pool", 2, 2, 5)
    done: set[Path] = set()
    for left in (2, 1, 0):
        working = reading([fifo for fifo in files if fifo.path not in done], 2 if left else 1)
        assert len(working) <= 2, "more at once than the host has slots"
        working[0].finish()
        done.add(working[0].path)
        if left:
            until(lambda left=left: cpu(agent) == (2, left - 1), "the next has the slot")
    (last,) = reading([fifo for fifo in files if fifo.path not in done], 1)
    last.finish("three more words")
    output, complaints = process.communicate(timeout=_TIMEOUT_S)
    assert (process.returncode, complaints) == (0, "")
    assert output.splitlines()[-1].split() == ["9", "in", "all"]


def test_a_killed_worker_gives_its_slot_to_the_next(start_agent: Start, run: Run, fifos: list[Fifo]) -> None:
    agent = start_agent(cores=1)
    process = pool(run, agent.socket, fifos[:2])
    until(lambda: cpu(agent) == (1, 1), "one works, one waits")
    (working,) = reading(fifos[:2], 1)
    reader = until(lambda: reader_of(working, process.pid), "its reader has it open")
    os.kill(reader, signal.SIGKILL)
    waiting = next(fifo for fifo in fifos[:2] if fifo is not working)
    until(waiting.open, "the one that waited works")


def reader_of(fifo: Fifo, group: int) -> int | None:
    """The process of that session that has the file open; it is not seen before its own open() has returned."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) != group:
                continue
            if any(link.readlink() == fifo.path for link in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:  # it ended while we looked
            continue
    return None


def test_a_pool_goes_on_without_its_agent_and_is_gated_again(start_agent: Start, run: Run, fifos: list[Fifo]) -> None:
    agent = start_agent(cores=2)
    process = pool(run, agent.socket, fifos)
    until(lambda: cpu(agent) == (2, 2), "two work, two wait")
    agent.kill()
    first = reading(fifos, 4)  # all processes of the pool work
    again = start_agent(cores=2)
    for fifo in first:
        fifo.finish()
    until(lambda: cpu(again)[0] >= 1, "work is gated again")
    for fifo in (each for each in fifos if each not in first):
        until(fifo.open, "it is read")
        fifo.finish()
    output, complaints = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 0 and output.split()[-3:] == ["16", "in", "all"]
    assert "going on without a grant: the agent closed the connection" in complaints


def test_a_pool_works_where_there_is_no_agent(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.txt").write_text("one two three")
    process = run(sys.executable, _EXAMPLES / "pool.py", tmp_path / "agent.sock", tmp_path / "a.txt")
    output, complaints = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 0 and output.split()[0] == "3"
    assert "going on without a grant" in complaints


def test_the_pool_s_usage(run: Run) -> None:
    process = run(sys.executable, _EXAMPLES / "pool.py")
    output, complaints = process.communicate(timeout=_TIMEOUT_S)
    assert (process.returncode, output) == (1, "") and complaints.endswith("pool.py SOCKET FILE...\n")
    assert complaints.startswith("usage: ")


_ONE_GATE = """
import sys
sys.path.insert(0, sys.argv[1])
import pool
pool.gate = pool.Gate(sys.argv[2])
pool.gate.acquire("gpu", 1)
"""


def test_a_pool_works_when_the_agent_refuses(start_agent: Start, run: Run) -> None:
    process = run(sys.executable, "-c", _ONE_GATE, _EXAMPLES, start_agent().socket)
    complaints = process.communicate(timeout=_TIMEOUT_S)[1]
    assert process.returncode == 0, complaints
    assert "going on without a grant" in complaints
    assert "gpu" in complaints, "the complaints name the fault"


# ---------------------------------------------------------------- another user's socket


class Listening:
    """A socket that a user listens on; keeps the received data."""

    def __init__(self, path: Path, uid: int) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        os.seteuid(uid)  # the kernel records the user that calls listen()
        try:
            self._socket.listen()
        finally:
            os.seteuid(0)

    def received(self) -> bytes:
        """Everything that a client sent that has closed its connection."""
        self._socket.settimeout(_TIMEOUT_S)
        connection, _ = self._socket.accept()
        with connection:
            connection.settimeout(_TIMEOUT_S)
            return connection.recv(65536)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["server", "owner", "mode"])
def trap(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    """A socket at which another user listens, or that is in a directory which another user owns or may write to."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    stranger = pwd.getpwnam("nobody").pw_uid
    directory = tmp_path / "run"
    directory.mkdir(mode=0o755)
    if request.param == "owner":
        os.chown(directory, stranger, -1)
    elif request.param == "mode":
        directory.chmod(0o777)
    made = Listening(directory / "agent.sock", stranger if request.param == "server" else 0)
    yield made
    made.close()


def test_a_pool_sends_nothing_where_another_user_may_listen(trap: Listening, run: Run) -> None:
    program = _ONE_GATE + "pool.gate.release(False)\n"
    process = run(sys.executable, "-c", program, _EXAMPLES, trap.path)
    complaints = process.communicate(timeout=_TIMEOUT_S)[1]
    assert process.returncode == 0, complaints
    assert f"going on without a grant: another user may listen at {trap.path}" in complaints
    assert trap.received() == b""


def test_c_sends_nothing_where_another_user_may_listen(trap: Listening, gate: Path, run: Run) -> None:
    process = run(gate, trap.path, "cpu", 1, "echo", "out")
    output, complaints = process.communicate(timeout=_TIMEOUT_S)
    assert (output, process.returncode) == ("out\n", 0)
    assert "going on without a grant" in complaints
    assert trap.received() == b""


# ---------------------------------------------------------------- C


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """examples/gate.c, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (Debian: apt-get install gcc libc6-dev)")
    program = tmp_path_factory.mktemp("gate") / "gate"
    command = [compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, _EXAMPLES / "gate.c"]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S)
    return program


def test_c_waits_for_its_slot_and_gives_it_back(gate: Path, start_agent: Start, run: Run, fifos: list[Fifo]) -> None:
    agent = start_agent(cores=1)
    first = run(gate, agent.socket, "cpu", 2**40, "cat", fifos[0].path)
    until(fifos[0].open, "it works")
    second = run(gate, agent.socket, "cpu", 300, "cat", fifos[1].path)
    until(lambda: cpu(agent) == (1, 1), "the second waits")
    assert not fifos[1].open()
    assert agent.status()["kinds"]["cpu"]["pending_bytes"] == 2**40 + 300
    fifos[0].finish("first")
    assert first.communicate(timeout=_TIMEOUT_S) == ("first", "")
    until(fifos[1].open, "the second works")
    fifos[1].finish("second")
    assert second.communicate(timeout=_TIMEOUT_S) == ("second", "")
    assert (first.returncode, second.returncode) == (0, 0)
    until(lambda: cpu(agent) == (0, 0), "the slot is free")


def test_c_when_it_is_killed_gives_its_slot_back(gate: Path, start_agent: Start, run: Run, fifos: list[Fifo]) -> None:
    agent = start_agent(cores=1)
    first = run(gate, agent.socket, "cpu", 1, "cat", fifos[0].path)
    until(fifos[0].open, "it works")
    second = run(gate, agent.socket, "cpu", 1, "cat", fifos[1].path)
    until(lambda: cpu(agent) == (1, 1), "the second waits")
    first.kill()
    assert fifos[0].reader_gone(), "its work goes on without the slot"
    until(fifos[1].open, "the second works")
    fifos[1].finish("second")
    assert second.communicate(timeout=_TIMEOUT_S) == ("second", "")


def test_c_goes_on_when_the_agent_dies_while_it_waits(
    gate: Path, start_agent: Start, run: Run, fifos: list[Fifo]
) -> None:
    agent = start_agent(cores=1)
    first = run(gate, agent.socket, "cpu", 1, "cat", fifos[0].path)
    until(fifos[0].open, "it works")
    second = run(gate, agent.socket, "cpu", 1, "cat", fifos[1].path)
    until(lambda: cpu(agent) == (1, 1), "the second waits")
    agent.kill()
    until(fifos[1].open, "the second works")
    for process, fifo in ((first, fifos[0]), (second, fifos[1])):
        fifo.finish("words")
        assert process.communicate(timeout=_TIMEOUT_S)[0] == "words"
        assert process.returncode == 0


def test_c_runs_its_command_where_there_is_no_agent(gate: Path, tmp_path: Path, run: Run) -> None:
    process = run(gate, tmp_path / "agent.sock", "cpu", 1, "sh", "-c", "echo out; exit 7")
    output, complaints = process.communicate(timeout=_TIMEOUT_S)
    assert (output, process.returncode) == ("out\n", 7)
    assert "going on without a grant" in complaints


def test_c_runs_its_command_when_the_agent_refuses(gate: Path, start_agent: Start, run: Run) -> None:
    process = run(gate, start_agent().socket, "gpu", 1, "echo", "out")
    output, complaints = process.communicate(timeout=_TIMEOUT_S)
    assert (output, process.returncode) == ("out\n", 0)
    assert "going on without a grant" in complaints


# ---------------------------------------------------------------- the page


def test_the_page_shows_the_examples_as_they_are() -> None:
    page = (_ROOT / "docs" / "integrate.md").read_text(encoding="utf-8")
    for language, example in (("python", "pool.py"), ("c", "gate.c")):
        source = (_EXAMPLES / example).read_text(encoding="utf-8")
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        assert blocks, f"docs/integrate.md shows nothing of {example}"
        for block in blocks:
            assert block in source, f"{example} has changed; docs/integrate.md still has:\n{block}"


def test_the_gate_of_the_pool_has_thirty_lines_at_most() -> None:
    source = (_EXAMPLES / "pool.py").read_text(encoding="utf-8")
    (made,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert made.end_lineno is not None
    lines = [line for line in source.splitlines()[made.lineno - 1 : made.end_lineno] if line.strip()]
    assert len(lines) <= 30
