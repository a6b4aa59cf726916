"""The launcher's process: ``python -I -m agent.launcher --runtime-dir DIR``.

It starts containers, waits for them, and keeps their exits until an agent has recorded them. It outlives agents; with
``--leave-after`` it ends when nothing runs and no agent has connected for so long. It makes no decisions. It waits only
in its selector.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import FrameType
from typing import Any

import msgpack

from agent.cgroup_root import cgroup2_mount, container_directory
from agent.launcher.account import Account
from agent.launcher.adopt import NotAdoptable, adopt, cgroup_of, exit_code
from agent.launcher.borrow import former, place_of, put_back
from agent.launcher.child import Spawner
from agent.launcher.connections import Connection, Connections, listen
from agent.launcher.descriptors import Reserve, Selector
from agent.launcher.exits import Exits
from agent.launcher.first_process import FirstProcess
from agent.launcher.messages import Adopt, Exited, Running, Start
from agent.launcher.session import kill_session
from penstock import sdnotify

#: The minimum time for the agent that started the launcher to connect.
_FIRST_AGENT_S = 120.0


class Server:
    """The launcher's main loop: one thread, one selector."""

    def __init__(self, path: Path, cgroup_root: Path | None, leave_after_s: float | None = None) -> None:
        """``leave_after_s``: ends after this long without an agent and without a container; None: never."""
        self._path = path
        self._leave_after_s = leave_after_s
        self._patience_s = leave_after_s and max(leave_after_s, _FIRST_AGENT_S)
        self._cgroup_root = cgroup_root
        self._spawner = Spawner()
        self._selector = Selector()
        self._reserve = Reserve()
        self._children: dict[str, FirstProcess] = {}
        self._starting: dict[str, FirstProcess] = {}
        self._ending = False
        self._stopping = False
        self._instance = os.urandom(8).hex()
        listening = listen(path)
        self._exits = Exits(path.with_name("exits"))
        self._agents = Connections(listening, self._selector, self._opened, self._handle)
        woken, wake = socket.socketpair()  # a signal must end select(), which Python would resume
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        self._wake = wake
        self._selector.watch(woken, lambda _: woken.recv(64))

    def serve(self) -> None:
        """Serve until an agent requested shutdown and nothing runs, the launcher idled too long, or :meth:`stop`."""
        sdnotify.notify("READY=1")
        while not self._stopping:
            idle = not (self._children or self._starting or self._agents.pids())
            if idle and self._ending:
                break
            if not self._selector.turn(self._patience_s if idle else None) and idle:  # for the whole time
                break
        self._path.unlink(missing_ok=True)

    def end_all(self) -> None:
        """Kill every container and wait for them. Adopted processes are left alone without a cgroup, or if they have
        left it since; borrowed ones return to their former cgroups.
        """
        self._reserve.give_up()
        children = (self._children | self._starting).values()
        for child in children:
            with contextlib.suppress(OSError):  # the others are ended nevertheless
                if child.origin is not None:
                    self._put_back(child)
                elif not child.adopted or child.in_its_cgroup():
                    self._kill_session(child)
        if self._stopping and self._cgroup_root is not None:
            # Includes processes that left the session, and containers of a launcher that died; needs Linux 5.14.
            for kill in self._cgroup_root.glob("containers/*/cgroup.kill"):
                with contextlib.suppress(FileNotFoundError):  # it was removed
                    kill.write_bytes(b"1")
        for child in children:
            if not child.adopted:
                os.waitpid(child.running.pid, 0)

    def stop(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal: make :meth:`serve` return after the present event."""
        self._stopping = True

    # ------------------------------------------------------------ requests

    def _opened(self, agent: Connection) -> None:
        self._ending = False
        self._patience_s = self._leave_after_s
        self._agents.send(agent, {"hello": str(self._cgroup_root or ""), "instance": self._instance, "groups": True})
        for exited in self._exits:
            self._agents.send(agent, {"exited": exited})

    def _handle(
        self, agent: Connection, request_id: int, request: dict[str, Any], descriptors: list[int]
    ) -> dict[str, Any] | None:
        """Return the answer; None if it follows later."""
        match request["do"]:
            case "start":
                return self._start(agent, request_id, Start(*request["start"]), descriptors)
            case "adopt" | "borrow" as do:
                return self._adopt(Adopt(*request["adopt"]), do == "borrow", *descriptors)
            case "give_back":
                return self._give_back(request["container"])
            case "running":
                self._agents.serve_others_first(agent)
                return {"running": [child.running for child in (self._children | self._starting).values()]}
            case "signal":
                self._signal(request["container"], int(request["signal"]))
            case "kill_session":
                if (child := self._children.get(request["container"])) is not None:
                    self._kill_session(child)
            case "kill_outside":
                self._kill_outside(request["container"])
            case "acknowledge":
                self._exits.drop(request["container"])
            case "shutdown":
                self._ending = True
            case other:
                return {"error": f"unknown request {other!r}"}
        return {}

    def _start(self, agent: Connection, request_id: int, start: Start, descriptors: list[int]) -> dict[str, Any] | None:
        if start.container in self._children or start.container in self._starting:
            return {"error": f"container {start.container!r} runs already"}
        stdin, stdout, stderr, *procs = descriptors
        try:
            pid, pidfd, report = self._spawner.spawn(start, procs[0] if procs else None, (stdin, stdout, stderr))
        except OSError as error:
            return {"error": f"no process can be started: {os.strerror(error.errno or 0)}"}
        running = Running(start.container, pid, start.user, time.time())
        child = self._starting[start.container] = FirstProcess(running, pidfd, bool(procs))
        self._selector.watch(report, lambda _: self._reported(agent, request_id, child, report))
        return None

    def _reported(self, agent: Connection, request_id: int, child: FirstProcess, report: int) -> None:
        """Read from the child's pipe, which exec closes (or the child's death: then an exit follows)."""
        data = os.read(report, select.PIPE_BUF)
        if data:
            child.report += data
            return
        self._selector.unregister(report)
        os.close(report)
        unpacker = msgpack.Unpacker()
        unpacker.feed(child.report)
        failure = None
        for what, *fields in unpacker:
            if what == "account":
                self._spawner.accounts.put(child.running.user, Account(*fields))
            else:
                failure = {"error": fields[0], "status": fields[1]}
        self._started(agent, request_id, child, failure)

    def _started(self, agent: Connection, request_id: int, child: FirstProcess, failure: dict[str, Any] | None) -> None:
        container = child.running.container
        del self._starting[container]
        if failure and agent in self._agents:
            self._selector.watch(child.pidfd, lambda _: self._clean_up(child))
            self._agents.send(agent, {"id": request_id, **failure})
            return
        # The requesting agent may be gone; its successor learns of a failure as an exit (127).
        self._children[container] = child
        self._selector.watch(child.pidfd, lambda _: self._reap(container))
        self._agents.send(agent, {"id": request_id, "pid": child.running.pid})

    def _adopt(self, asked: Adopt, borrow: bool, procs_fd: int | None = None) -> dict[str, Any]:
        container = asked.container
        if container in self._children or container in self._starting:
            return {"error": f"container {container!r} runs already"}
        os.close(os.dup(self._wake.fileno()))  # there is one for the pidfd; the reserve is for the rest
        ours = {os.getpid(), *self._agents.pids()}
        with self._reserve:
            holder = cgroup_of(os.getpid())
            tree = holder.removesuffix("holder") + "containers/" if self._cgroup_root is not None else None
            mount = cgroup2_mount() if procs_fd is not None else None
            before = former(asked.pid, mount) if mount is not None else None
            try:
                origin = place_of(asked.pid, mount) if borrow and mount is not None else None
                pidfd = adopt(asked, procs_fd, ours, tree, together=borrow)
            except NotAdoptable as error:
                if before is not None and mount is not None and self._cgroup_root is not None:
                    put_back(container_directory(self._cgroup_root, container), before, mount)
                return {"error": str(error)}
        running = Running(container, asked.pid, asked.user, time.time())
        confined = procs_fd is not None
        self._children[container] = FirstProcess(running, pidfd, confined, adopted=True, uid=asked.uid, origin=origin)
        self._selector.watch(pidfd, lambda _: self._reap(container))
        return {}

    def _give_back(self, container: str) -> dict[str, Any]:
        child = self._children.get(container)
        if child is None or not child.adopted or (child.confined and child.origin is None):
            return {"error": f"container {container!r} was not borrowed by this launcher"}
        if not self._put_back(child):
            return {"error": f"some processes of {container!r} could not be moved back"}
        del self._children[container]
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        return {}

    def _put_back(self, child: FirstProcess) -> bool:
        with self._reserve:
            mount = cgroup2_mount()
            if child.origin is None or mount is None or self._cgroup_root is None:
                return True  # it was only watched
            return put_back(container_directory(self._cgroup_root, child.running.container), child.origin, mount)

    # ------------------------------------------------------------ ends

    def _clean_up(self, child: FirstProcess) -> tuple[int | None, resource.struct_rusage | None]:
        """Clean up after a container; return its exit code and its use, as far as they can be known.

        Raises:
            OSError: it needs a descriptor, and none is free; nothing is lost, and it can be tried again.
        """
        pid, code = child.running.pid, None
        if child.adopted:
            self._put_back(child)  # its remaining children, which the end of the container would kill
            with self._reserve:
                code = exit_code(pid, child.pidfd)
        elif not child.confined:
            # Only here can its children be ended: until the leader is reaped, its session number is not reused.
            self._kill_session(child)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        if child.adopted:
            return code, None
        _, status, used = os.wait4(pid, 0)
        return os.waitstatus_to_exitcode(status), used

    def _reap(self, container: str) -> None:
        code, used = self._clean_up(self._children[container])
        del self._children[container]
        exited = Exited(
            container=container,
            exit_status=128 - code if code is not None and code < 0 else code,
            signal=-code if code is not None and code < 0 else None,
            cpu_seconds=used.ru_utime + used.ru_stime if used is not None else 0.0,
            max_rss_bytes=used.ru_maxrss * 1024 if used is not None else 0,
            ended_at=time.time(),
        )
        self._exits.add(exited)  # first, because an agent may acknowledge it at once
        self._agents.send_to_all({"exited": exited})

    def _signal(self, container: str, signum: int) -> None:
        child = self._children.get(container)
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if child.adopted:
                signal.pidfd_send_signal(child.pidfd, signum)  # its process group may contain other processes
            else:
                os.killpg(child.running.pid, signum)  # not reaped yet, so the pid is still the container's

    def _kill_outside(self, container: str) -> None:
        with self._reserve, contextlib.suppress(ProcessLookupError):
            if (child := self._children.get(container)) is not None and child.is_outside():
                self._kill_session(child, spared=self._children.keys() - {container})

    def _kill_session(self, child: FirstProcess, spared: AbstractSet[str] = frozenset()) -> None:
        if child.adopted:
            self._signal(child.running.container, signal.SIGKILL)  # its session may be its user's login
        else:
            with self._reserve:
                kill_session(child.running.pid, spared)
