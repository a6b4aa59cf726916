"""``penstock`` as a program whose imports are paid for once: a third of a second less for each of the hundreds started.

A server imports the command line and forks a process for each command. The program in its place is a stub: it hands its
arguments, environment, directory and standard streams to the server, passes signals on, and ends as the command ended.
A test of the process itself (its start, its name, its process group, another user's) starts the real one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import marshal
import os
import pkgutil
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
#: Of the number in front of a request, and of the exit status behind it.
_NUMBER_BYTES = 4
_REQUEST_TIMEOUT_S = 30.0
#: Modules that the command line imports inside functions.
_LIBRARIES = ("asyncio", "json", "msgspec", "rich.console", "rich.live", "rich.table", "rich.text", "urllib.request")
#: Programs that `penstock up` starts: program → the module that it imports.
_DAEMONS = {"agent": "agent.daemon", "master": "master.daemon"}

#: The place in the directory of the program that replaces the interpreter when ``penstock up`` starts its daemons.
_PYTHON = "daemons/python"
#: The server of this process, which runs as long as this is referred to.
_SERVERS: list[subprocess.Popen[bytes]] = []

#: Imports only modules that are built into the interpreter: this starts within a hundredth of a second.
_STUB = """\
#!{python} -IS
import _signal, _socket, marshal, posix, sys
kind, arguments = {kind!r}, sys.argv[1:]
if kind == "python":
    if arguments[:2] != ["-I", "-m"] or arguments[2] not in {daemons!r}:
        posix.execv({python!r}, [{python!r}, *arguments])
    kind, arguments = arguments[2], arguments[3:]
mask = posix.umask(0)
posix.umask(mask)
ignored = [number for number in (1, 2, 3, 15) if _signal.getsignal(number) == _signal.SIG_IGN]
cores = posix.sched_getaffinity(0)
request = marshal.dumps((kind, arguments, posix.environ, posix.getcwd(), mask, ignored, cores))
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg([len(request).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(request)
for number in (1, 2, 3, 10, 12, 15, 18):
    _signal.signal(number, lambda number, frame: server.send(bytes([number])))
for stream in (0, 1, 2):
    posix.close(stream)
status = int.from_bytes(server.recv(4), "big", signed=True)
if status < 0:
    if -status != 9:
        _signal.signal(-status, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -status)
posix._exit(status)
"""


def penstock() -> str:
    """Return the path of a program that behaves like ``penstock``."""
    return str(_directory() / "bin/penstock")


def python() -> str:
    """Return the path of a program that behaves like the interpreter, and forks for ``-I -m agent`` and ``-I -m
    master``.
    """
    return str(_directory() / _PYTHON)


@functools.cache
def _directory() -> Path:
    """Where the stubs of this process's server are; it ends with this process, and removes them."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-warm-"))
    address = str(directory / "server")
    for stub in (directory / "bin/penstock", directory / _PYTHON):
        stub.parent.mkdir()
        stub.write_text(_STUB.format(python=sys.executable, kind=stub.name, address=address, daemons=tuple(_DAEMONS)))
        stub.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        program = f"from tests.warm_commands import serve; serve({listener.fileno()}, {str(directory)!r})"
        # No test waits for the server: it ends when its standard input does, which is when this process has ended.
        _SERVERS.append(
            subprocess.Popen(
                [sys.executable, "-c", program], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()], start_new_session=True,
            )
        )  # fmt: skip
    return directory


# ---------------------------------------------------------------- the server


@dataclass(frozen=True)
class _Request:
    """The request of one stub."""

    kind: str
    arguments: list[str]
    environment: dict[bytes, bytes]
    directory: str
    umask: int
    ignored: list[int]
    cores: set[int]
    streams: list[int]


@dataclass(frozen=True)
class _Running:
    """A process that was forked, and the connection of the stub that waits for its end."""

    pid: int
    stub: socket.socket


def serve(descriptor: int, directory: str) -> None:
    """Fork on the requests of stubs, until standard input ends."""
    sys.path[0] = str(_ROOT)  # it was the current directory, and commands run in others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(fileno=descriptor)
    try:
        request = _Server(listener).next_to_become()
    finally:
        if request is None:
            shutil.rmtree(directory, ignore_errors=True)
    if request is not None:
        _become(request, Path(directory))
        sys.exit(_main(request.kind)(request.arguments))


class _Server:
    """One thread, which forks: nothing else may run here."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(0, selectors.EVENT_READ, None)
        self._running: dict[int, _Running] = {}

    def next_to_become(self) -> _Request | None:
        """The request, in each process that is forked; None in the server, at its end."""
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return None
                if (request := key.data(key.fd)) is not None:
                    return request

    def _accept(self, _: int) -> _Request | None:
        stub = self._listener.accept()[0]
        try:
            request = _received(stub)
        except (OSError, EOFError, ValueError):  # it was killed before it had sent everything
            stub.close()
            return None
        _import(request)
        pid = os.fork()
        if pid == 0:
            self._selector.close()
            for one in (self._listener, stub, *(running.stub for running in self._running.values())):
                one.close()
            for ended in self._running:
                os.close(ended)
            return request
        for stream in request.streams:
            os.close(stream)
        ended = os.pidfd_open(pid)
        self._running[ended] = _Running(pid, stub)
        self._selector.register(ended, selectors.EVENT_READ, self._reap)
        self._selector.register(stub, selectors.EVENT_READ, lambda _: self._signal(ended))
        return None

    def _signal(self, ended: int) -> None:
        """Pass on the stub's signals; where the stub is dead, kill."""
        running = self._running[ended]
        try:
            numbers = running.stub.recv(64)
        except ConnectionResetError:
            numbers = b""
        for number in numbers or [signal.SIGKILL]:
            os.kill(running.pid, number)
        if not numbers:
            self._selector.unregister(running.stub)

    def _reap(self, ended: int) -> None:
        running = self._running.pop(ended)
        status = os.waitstatus_to_exitcode(os.waitpid(running.pid, 0)[1])
        self._selector.unregister(ended)
        os.close(ended)
        if running.stub in self._selector.get_map():
            self._selector.unregister(running.stub)
            with contextlib.suppress(ConnectionError):  # it was killed together with its command
                running.stub.send(status.to_bytes(_NUMBER_BYTES, "big", signed=True), socket.MSG_NOSIGNAL)
        running.stub.close()


def _received(stub: socket.socket) -> _Request:
    stub.settimeout(_REQUEST_TIMEOUT_S)
    header, streams, _, _ = socket.recv_fds(stub, _NUMBER_BYTES, 3)
    size = int.from_bytes(header, "big")
    request = b""
    while len(request) < size:
        if not (part := stub.recv(size - len(request))):
            raise EOFError
        request += part
    return _Request(*marshal.loads(request), streams)


def _import(request: _Request) -> None:
    """Import here, for all forked processes, the modules that each would import by itself."""
    if request.kind in _DAEMONS:
        _import_all(_DAEMONS[request.kind])
    elif request.arguments:
        _import_command(request.arguments[0])


@functools.cache
def _import_command(name: str) -> None:
    from penstock import cli
    from penstock.cli import main

    if name in main.names():
        main.find(name)
        _import_all(*_LIBRARIES, *(f"penstock.cli.{module.name}" for module in pkgutil.iter_modules(cli.__path__)))


@functools.cache
def _import_all(*modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


# ---------------------------------------------------------------- the forked process


def _become(request: _Request, directory: Path) -> None:
    """This process is as if it had been started by the stub's parent."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environb.update(request.environment)
    time.tzset()
    os.chdir(request.directory)
    os.umask(request.umask)
    os.sched_setaffinity(0, request.cores)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.argv = [request.kind, *request.arguments]
    if request.arguments[:1] == ["up"]:
        sys.executable = str(directory / _PYTHON)  # so that its daemons are forked, too


def _main(kind: str) -> Callable[[list[str]], int]:
    if fault_injection := sys.modules.get("agent.fault_injection"):
        importlib.reload(fault_injection)  # it alone reads its environment when it is imported
    module = importlib.import_module("penstock.cli.main" if kind == "penstock" else f"{kind}.command")
    main: Callable[[list[str]], int] = module.main
    return main
