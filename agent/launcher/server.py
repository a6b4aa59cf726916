"""The launcher's process: ``python -I -m agent.launcher --runtime-dir DIR``.

It starts containers, waits for them, and keeps how they ended until an agent has recorded it. It outlives agents; it
never decides anything.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import msgpack

from agent.launcher.child import NotStartable, spawn
from agent.launcher.messages import MAX_MESSAGE_BYTES, Exited, Running, Start, widen
from penstock import sdnotify

_DESCRIPTORS = 4  # stdin, stdout, stderr, and cgroup.procs


@dataclass(slots=True)
class _Child:
    running: Running
    pidfd: int


class Server:
    """One thread, one selector."""

    def __init__(self, path: Path, cgroup_root: Path | None) -> None:
        self._path = path
        self._cgroup_root = cgroup_root
        self._selector = selectors.DefaultSelector()
        self._children: dict[str, _Child] = {}
        self._exits: dict[str, Exited] = {}
        self._agents: set[socket.socket] = set()
        self._ending = False
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        old = os.umask(0o177)
        self._listening.bind(str(path))
        os.umask(old)
        self._listening.listen(16)
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)

    def serve(self) -> None:
        """Until an agent says shutdown and nothing runs any more."""
        sdnotify.notify("READY=1")
        while not (self._ending and not self._children and not self._agents):
            for key, _ in self._selector.select():
                key.data(key.fileobj)
        self._path.unlink(missing_ok=True)

    def end_all(self) -> None:
        """Kill every container and wait for them."""
        for container, child in list(self._children.items()):
            self._kill_session(container)
            kill = self._cgroup_root / "containers" / container / "cgroup.kill" if self._cgroup_root else None
            if kill is not None and kill.exists():
                kill.write_bytes(b"1")  # also what left the session
            os.waitpid(child.running.pid, 0)

    # ------------------------------------------------------------ connections

    def _accept(self, listening: socket.socket) -> None:
        agent, _ = listening.accept()
        uid = struct.unpack("3i", agent.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid not in (0, os.geteuid()):
            agent.close()
            return
        widen(agent)
        self._agents.add(agent)
        self._selector.register(agent, selectors.EVENT_READ, self._receive)
        root = str(self._cgroup_root) if self._cgroup_root is not None else ""
        self._send(agent, {"hello": root})
        for exited in list(self._exits.values()):
            self._send(agent, {"exited": astuple(exited)})

    def _receive(self, agent: socket.socket) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(agent, MAX_MESSAGE_BYTES, _DESCRIPTORS)
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._drop(agent)
            return
        try:
            request = msgpack.unpackb(data)
            answer = self._handle(request["do"], request, descriptors)
        except NotStartable as error:
            answer = {"error": str(error)}
        except OSError as error:
            answer = {"error": f"{error.strerror}: {error.filename or request['do']}"}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._send(agent, {"id": request["id"], **answer})

    def _drop(self, agent: socket.socket) -> None:
        self._selector.unregister(agent)
        self._agents.discard(agent)
        agent.close()

    def _send(self, agent: socket.socket, message: dict[str, Any]) -> None:
        try:
            agent.send(msgpack.packb(message))
        except OSError:
            return  # the agent is gone: its successor asks again

    # ------------------------------------------------------------ requests

    def _handle(self, what: str, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        match what:
            case "start":
                return {"pid": self._start(Start(*request["start"]), descriptors)}
            case "running":
                return {"running": [astuple(child.running) for child in self._children.values()]}
            case "signal":
                self._signal(request["container"], request["signal"])
            case "kill_session":
                self._kill_session(request["container"])
            case "acknowledge":
                self._exits.pop(request["container"], None)
            case "shutdown":
                self._ending = True
            case _:
                return {"error": f"unknown request {what!r}"}
        return {}

    def _start(self, start: Start, descriptors: list[int]) -> int:
        if start.container in self._children:
            raise NotStartable(f"container {start.container!r} runs already")
        stdin, stdout, stderr, *procs = descriptors
        pid = spawn(start, procs[0] if procs else None, (stdin, stdout, stderr))
        pidfd = os.pidfd_open(pid)  # Linux 5.3
        self._children[start.container] = _Child(Running(start.container, pid, start.user, time.time()), pidfd)
        self._selector.register(pidfd, selectors.EVENT_READ, lambda _: self._reap(start.container))
        return pid

    def _reap(self, container: str) -> None:
        child = self._children.pop(container)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        _, status, used = os.wait4(child.running.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        exited = Exited(
            container=container,
            exit_status=code if code >= 0 else 128 - code,
            signal=-code if code < 0 else None,
            cpu_seconds=used.ru_utime + used.ru_stime,
            max_rss_bytes=used.ru_maxrss * 1024,
            ended_at=time.time(),
        )
        self._exits[container] = exited
        for agent in self._agents:
            self._send(agent, {"exited": astuple(exited)})

    def _signal(self, container: str, signum: int) -> None:
        child = self._children.get(container)
        if child is not None:  # not reaped yet, so the pid is still the container's
            try:
                os.killpg(child.running.pid, signum)
            except ProcessLookupError:
                return

    def _kill_session(self, container: str) -> None:
        """Where there is no cgroup: every process of its session, as far as it stayed in it."""
        child = self._children.get(container)
        if child is None:
            return
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    if os.getsid(int(entry.name)) == child.running.pid:
                        os.kill(int(entry.name), 9)
                except (ProcessLookupError, PermissionError):
                    continue
