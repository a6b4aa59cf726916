"""The agent's side of the launcher's socket."""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack

from agent import process as agent_process
from agent.cgroup_root import CONTAINERS_UNIT
from agent.launcher.messages import MAX_MESSAGE_BYTES, Adopt, Exited, Running, Start, room, widen
from penstock import systemd_scope
from penstock.peer_credentials import UntrustedServerError, check_server

_START_TIMEOUT_S = 120.0


class LaunchFailed(Exception):  # noqa: N818 - describes a state
    """Why a command could not be started or adopted: one line for its user.

    ``exit_status`` is what a shell would return: 127 if the command does not exist, 126 if it cannot be executed, None
    for other failures. ``limit`` is the strict limit that the host does not enforce, empty for other failures.
    """

    def __init__(self, message: str, exit_status: int | None = None, *, limit: str = "") -> None:
        super().__init__(message)
        self.exit_status = exit_status
        self.limit = limit


class LauncherGone(LaunchFailed):
    """The launcher died. ``asked``: the request was sent, so it may have been carried out."""

    def __init__(self, *, asked: bool) -> None:
        super().__init__("the launcher is gone")
        self.asked = asked


class Launcher:
    """A connection to the launcher, created by :meth:`connect`."""

    def __init__(
        self, connection: socket.socket, on_exit: Callable[[Exited], None], on_lost: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._room = room()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_id = 0
        self._hello: asyncio.Future[str] = self._loop.create_future()
        self._closed = False
        self.cgroup_root: Path | None = None
        self.instance = ""  # different for each launcher process; "" for older launchers
        self.finds_groups = False  # it finds containers in groups (agent.core.groups); an older launcher does not
        self._loop.add_reader(connection, self._readable)

    @classmethod
    async def connect(
        cls,
        runtime_dir: Path,
        on_exit: Callable[[Exited], None],
        *,
        on_lost: Callable[[], None],
        spawn: bool,
        cgroup_root: Path | None,
        in_scope: bool = False,
        leave_after_s: float = 0.0,
    ) -> Launcher:
        """Connect; with ``spawn``, start a launcher, which outlives the agent, if none answers. Unacknowledged exits
        are delivered before this returns.

        Args:
            runtime_dir: the directory of its socket.
            on_exit: called for each exit, again for those that no agent has acknowledged.
            on_lost: called once if the launcher dies: ends of its containers can then no longer be observed.
            spawn: outside systemd, where no unit starts it.
            cgroup_root: for a spawned launcher: a cgroup v2 directory, existing or to be created.
            in_scope: for a spawned launcher without a ``cgroup_root``: it gets a scope of systemd's.
            leave_after_s: for a spawned launcher: it ends this long after its last container and agent; 0: never.

        Raises:
            OSError: no launcher answers, or one cannot be started.
        """
        path = runtime_dir / "launcher.sock"
        connection = _dial(path)
        if connection is None and spawn:
            await asyncio.to_thread(_spawn, runtime_dir, cgroup_root, in_scope, leave_after_s)
            connection = _dial(path)
        if connection is None:
            raise OSError(errno.ECONNREFUSED, f"no launcher answers at {path}; start penstock-containers.service")
        launcher = cls(connection, on_exit, on_lost)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                root = await launcher._hello
                await launcher.running()  # answered after the exits that were waiting
        except (LaunchFailed, TimeoutError) as error:
            await launcher.close()
            raise OSError(errno.ECONNABORTED, f"the launcher at {path} does not answer: {error}") from None
        launcher.cgroup_root = Path(root) if root else None
        return launcher

    async def start(self, start: Start, *, procs_fd: int | None, stdio: tuple[int, int, int]) -> int:
        """Start a command; return its pid once it runs.

        Raises:
            LaunchFailed: a step failed; the message names it. LauncherGone: it is unknown whether the command started.
        """
        descriptors = [*stdio, *([procs_fd] if procs_fd is not None else [])]
        answer = await self._ask({"do": "start", "start": start}, descriptors)
        if "error" in answer:
            raise LaunchFailed(answer["error"], answer.get("status"))
        return int(answer["pid"])

    async def adopt(
        self, container: str, pid: int, user: str, *, procs_fd: int | None = None, tree: bool = False,
        borrow: bool = False,
    ) -> None:  # fmt: skip
        """Take over a process that ``user`` has started elsewhere; its end is reported as for any other.

        Its threads are moved too, its existing children only with ``tree``. Resources charged before (memory, page
        cache, sockets) stay charged to the former cgroup. :attr:`Exited.exit_status` may be None. Without ``procs_fd``
        the process is only watched, and only the process itself can be killed. With ``borrow`` it can be given back
        (:meth:`give_back`), which also happens when the launcher is stopped; its children continue when it ends.

        Raises:
            LaunchFailed: no such process, not the user's alone, Penstock's own, or in a container already; with
                ``borrow``, in a cgroup with limits of its own.
        """
        try:
            uid = (await asyncio.to_thread(pwd.getpwnam, user)).pw_uid
        except KeyError:
            raise LaunchFailed(f"user {user!r} is not known on this host") from None
        asked = Adopt(container=container, pid=pid, user=user, uid=uid, tree=tree)
        request = {"do": "borrow" if borrow else "adopt", "adopt": asked}
        answer = await self._ask(request, [procs_fd] if procs_fd is not None else [])
        if "error" in answer:
            raise LaunchFailed(answer["error"])

    async def give_back(self, container: str) -> None:
        """Move a borrowed process back to its former cgroup, and drop it: its end is not reported.

        Raises:
            LaunchFailed: it has ended, or was not borrowed by this launcher.
        """
        answer = await self._ask({"do": "give_back", "container": container})
        if "error" in answer:
            raise LaunchFailed(answer["error"])

    async def running(self) -> list[Running]:
        """Return the running containers."""
        return [Running(*fields) for fields in (await self._ask({"do": "running"}))["running"]]

    async def signal(self, container: str, signum: int) -> None:
        """Signal the process group of a container's first process (an adopted one: itself); no error if it is gone."""
        await self._ask({"do": "signal", "container": container, "signal": signum})

    async def kill_session(self, container: str, *, outside: bool = False) -> None:
        """Send SIGKILL to every process of the container's session (an adopted process: itself), for containers without
        a cgroup.

        ``outside``: only if another program has moved its first process out of its cgroup; not to an adopted one that
        is another user's by now. An older launcher ignores such a request.
        """
        await self._ask({"do": "kill_outside" if outside else "kill_session", "container": container})

    async def acknowledge(self, container: str) -> None:
        """Let the launcher drop the exit of a container, which was recorded."""
        await self._ask({"do": "acknowledge", "container": container})

    async def shutdown(self) -> None:
        """Make the launcher end once no container runs and this connection is closed."""
        await self._ask({"do": "shutdown"})

    async def close(self) -> None:
        """Close the connection; the launcher continues, and ``on_lost`` is not called."""
        if self._connection.fileno() < 0:
            return
        self._closed = True
        self._lost()
        self._connection.close()

    @property
    def gone(self) -> bool:
        """Whether the launcher died or the connection was closed."""
        return self._closed

    # ------------------------------------------------------------ inside

    async def _ask(self, request: dict[str, Any], descriptors: list[int] | None = None) -> dict[str, Any]:
        self._next_id += 1
        request_id = self._next_id
        data = msgpack.packb({"id": request_id, **request})
        if len(data) > MAX_MESSAGE_BYTES:  # the launcher would read a part of it
            raise _too_large(len(data))
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._waiting[request_id] = future
        try:
            # Local, small, and read by a process that does nothing else: this does not block for long.
            socket.send_fds(self._connection, [data], descriptors or [])
            return await future
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise _too_large(len(data)) from None
            if error.errno in {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN}:
                self._read_to_the_end()
                raise LauncherGone(asked=False) from None
            raise LaunchFailed(f"the launcher does not answer: {error.strerror}") from None
        finally:
            self._waiting.pop(request_id, None)

    def _read_to_the_end(self) -> None:
        """Read the last messages of a launcher that is gone, up to the end of the stream."""
        while not self._closed:
            self._readable()

    def _readable(self) -> None:
        try:
            size = self._connection.recv_into(self._room, 0, socket.MSG_DONTWAIT)
            data = memoryview(self._room)[:size]
        except BlockingIOError:
            return
        except ConnectionResetError:
            # It died with requests unread. The kernel reports that once, followed by the messages sent before and the
            # end of the stream. uvloop stops watching a socket after an error.
            self._read_to_the_end()
            return
        except OSError:
            data = memoryview(b"")
        if not data:
            self._lost()
            return
        message = msgpack.unpackb(data)
        if "exited" in message:
            self._on_exit(Exited(*message["exited"]))
        elif "hello" in message:
            self.instance = message.get("instance", "")
            self.finds_groups = message.get("groups", False)
            self._hello.set_result(message["hello"])
        else:
            future = self._waiting.get(message["id"])
            if future is not None and not future.done():
                future.set_result(message)

    def _lost(self) -> None:
        self._loop.remove_reader(self._connection)
        waiting: list[asyncio.Future[Any]] = [self._hello, *self._waiting.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(LauncherGone(asked=True))
                future.exception()  # marked as retrieved: a waiting caller gets it nevertheless
        if not self._closed:
            self._closed = True
            self._on_lost()


def _dial(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        widen(connection)
        connection.connect(str(path))
        check_server(connection, path)
    except UntrustedServerError:
        connection.close()
        raise
    except OSError:
        connection.close()
        return None
    return connection


def _spawn(runtime_dir: Path, cgroup_root: Path | None, in_scope: bool, leave_after_s: float) -> None:
    """Start a launcher in a session of its own and wait until it reports that it listens.

    It must not inherit our standard output and error, whose readers may wait for their end: it writes to a log file.
    """
    log = runtime_dir / "launcher.log"
    command = [sys.executable, "-I", "-m", "agent.launcher", "--runtime-dir", str(runtime_dir)]
    if cgroup_root is not None:
        command += ["--cgroup-root", str(cgroup_root)]
    elif in_scope:
        unit = f"{CONTAINERS_UNIT}-{os.getpid()}-{os.urandom(2).hex()}"
        command = [*systemd_scope.command(unit, for_containers=True), *command]
    if leave_after_s:
        command += ["--leave-after", str(leave_after_s)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ready, log.open("w") as output:
        address = f"\0penstock-launcher-{os.getpid()}-{os.urandom(4).hex()}"
        ready.bind(address)
        process = subprocess.Popen(
            command, env={**os.environ, "NOTIFY_SOCKET": "@" + address[1:]}, cwd="/", stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, agent_process.STARTED_WITH)
        pidfd = os.pidfd_open(process.pid)
        try:
            answered, _, _ = select.select([ready.fileno(), pidfd], [], [], _START_TIMEOUT_S)
            # systemd-run says here that it failed
            listens = ready.fileno() in answered and ready.recv(4096) == b"READY=1"
        finally:
            os.close(pidfd)
    if listens:
        process.returncode = 0  # it outlives us on purpose: this avoids Popen's warning
        return
    process.kill()
    process.wait()
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    raise OSError(
        errno.ECHILD, f"the launcher did not start: {text.splitlines()[-1] if text else 'it printed nothing'}"
    )


def _too_large(size_bytes: int) -> LaunchFailed:
    return LaunchFailed(f"arguments and environment are too large ({size_bytes} bytes)")
