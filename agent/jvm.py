"""Java heaps follow the planned memory of their executor (Elasecutor §IV.B, without a patched JVM).

OpenJDK 17 and later have a manageable soft maximum of the heap, which ``jcmd`` sets while the JVM runs. A memory limit
cannot fall below the memory that the JVM holds, so the heap follows the plan, not the limit: when the plan falls, the
collector returns memory and the limit follows; when it rises, the limit rises first. ZGC and Shenandoah obey the soft
maximum; G1 on 17 does not until a full collection, which is reported.

Commands to a user's process are run as that user, never as root, by a ``jcmd`` that the user could not have written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from agent.core.records import ContainerRecord, ContainerState
from agent.launcher.account import Account, look_up
from agent.launcher.syscalls import join_new_session_keyring

if TYPE_CHECKING:
    from agent.cgroups import CgroupTree
    from agent.core import Node
    from agent.core.plans import Plan

#: The minimum relative change, up and down: smaller ones are not worth the 0.13 to 0.17 s of CPU time that jcmd takes.
_WORTH_MORE, _WORTH_LESS = 0.05, 0.1
#: The mean minimum time between changes of a heap, which is less than half a percent of a core, …
_EVERY_S = 40.0
#: … and the number of changes in a row. The last two are for heaps that have to grow, which may not wait.
_IN_A_ROW, _TO_GROW = 4, 2
#: A dip shorter than this is ignored: it is over before a collector has returned memory.
_DIP_S = 10.0
_TIMEOUT_S = 30.0
#: When the agent ends, the commands that run have this much time together.
_LAST_S = 3.0
_MOST_ANSWER_BYTES = 64 * 1024
#: The minimum heap: a smaller one only collects.
_LEAST_HEAP_BYTES = 16 << 20
#: After this many failures in a row, the process is left alone.
_GIVE_UP_AFTER = 3
#: jcmd is a JVM, too: options for a minimal one.
_LIGHT = ("-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1", "-J-Xmx32m")
_PATH = "/usr/bin:/bin:/usr/local/bin"
#: ZGC's default, and the longest delay that can follow slots of seconds.
_UNCOMMIT_DEFAULT_S, _UNCOMMIT_WISH_S = 300, 5
_FOLLOWS = f"start it with -XX:+UseZGC -XX:ZUncommitDelay={_UNCOMMIT_WISH_S}, or with -XX:+UseShenandoahGC"

#: Runs a command as a user and returns its output. Raises OSError, including TimeoutError.
Runner = Callable[[Account, tuple[str, ...]], str]


@dataclass(slots=True)
class _Jvm:
    """A JVM. ``most_bytes``: its maximum heap. ``set_bytes``: the soft maximum last set.

    ``changes`` is the number of changes left at ``counted_at``.
    """

    pid: int
    account: Account
    jcmd: str
    most_bytes: int
    set_bytes: int = 0
    failures: int = 0
    changes: float = _IN_A_ROW
    counted_at: float = 0.0

    def is_due(self, wanted: int, now: float) -> bool:
        """Return whether the difference is worth a change, and one is left."""
        more = wanted >= self.set_bytes
        worth = abs(wanted - self.set_bytes) >= (_WORTH_MORE if more else _WORTH_LESS) * self.set_bytes
        return worth and self._left(now) >= (1 if more else 1 + _TO_GROW) and self.failures < _GIVE_UP_AFTER

    def count_change(self, wanted: int, now: float) -> None:
        """Count a change."""
        self.changes = self._left(now) - 1
        self.set_bytes, self.counted_at = wanted, now

    def _left(self, now: float) -> float:
        return min(_IN_A_ROW, self.changes + (now - self.counted_at) / _EVERY_S)


@dataclass(slots=True)
class _Executor:
    """An executor's JVMs. ``known``: (pid, program) → its JVM; None: not a JVM."""

    memory_bytes: int = 0
    user: str = ""
    known: dict[tuple[int, str], _Jvm | None] = field(default_factory=dict)
    worker: asyncio.Task[None] | None = None

    def due(self, share: float, now: float) -> list[tuple[_Jvm, int]]:
        """Return the JVMs to change, and their soft maximums in bytes. Several JVMs get equal parts."""
        jvms = [jvm for jvm in self.known.values() if jvm is not None]
        found = []
        for jvm in jvms:
            wanted = min(jvm.most_bytes, max(_LEAST_HEAP_BYTES, int(share * self.memory_bytes / len(jvms))))
            if jvm.is_due(wanted, now):
                found.append((jvm, wanted))
        return found


class JvmHeaps:
    """One per agent. ``share`` of an executor's memory is for the heap; ``note`` reports heaps that do not follow."""

    def __init__(
        self,
        tree: CgroupTree | None,
        note: Callable[..., object],
        share: float,
        run: Runner | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tree = tree
        self._note = note
        self._share = share
        self._stop = os.eventfd(0)  # readable: commands that run are killed
        self._closing = False
        self._run = run or partial(run_as, stop=self._stop)
        self._clock = clock
        self._executors: dict[str, _Executor] = {}
        self._threads = ThreadPoolExecutor(2, "jvm")  # a separate pool: a JVM that hangs blocks no other work

    def follow(self, node: Node, now: float) -> None:
        """Update the executors with Java heaps; changes are made in the background, one at a time."""
        records = [
            record
            for record in node.containers.live.values()
            if record.executor is not None and record.executor.jvm and record.state is ContainerState.RUNNING
        ]
        for gone in self._executors.keys() - {record.container for record in records}:
            del self._executors[gone]
        plans = node.elasticity.plans(now) if records else {}
        for record in records:
            plan = plans.get(record.container)
            before = self._executors.setdefault(record.container, _Executor()).memory_bytes
            planned = _planned_bytes(plan, before) if plan is not None else 0
            self.bring(record, planned or _limit_bytes(record))

    def bring(self, record: ContainerRecord, memory_bytes: int) -> None:
        """Give a container's heaps their part of this much memory; 0: it has no limit, and they stay unchanged."""
        one = self._executors.setdefault(record.container, _Executor())
        one.memory_bytes, one.user = memory_bytes, record.user
        if one.worker is not None or not memory_bytes:
            return
        programs = {key for pid in self._pids(record) if (key := _program(pid)) is not None}
        one.known = {key: jvm for key, jvm in one.known.items() if key in programs}
        fresh = programs - one.known.keys()
        if fresh or one.due(self._share, self._clock()):
            one.worker = asyncio.get_running_loop().create_task(self._work(record.container, one, fresh))

    async def settled(self) -> None:
        """Wait until all changes begun are done."""
        while workers := [one.worker for one in self._executors.values() if one.worker is not None]:
            await asyncio.wait(workers)

    async def close(self) -> None:
        """Wait for commands begun, :data:`_LAST_S` for all together; then kill them. No more are begun."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settled(), _LAST_S)
        os.eventfd_write(self._stop, 1)
        await self.settled()
        self._threads.shutdown()
        os.close(self._stop)

    # ------------------------------------------------------------ inside

    def _pids(self, record: ContainerRecord) -> list[int]:
        if self._tree is not None:
            return self._tree.get(record.container).pids()
        try:
            first = psutil.Process(record.pid)
            return [first.pid, *(child.pid for child in first.children(recursive=True))]
        except psutil.Error:
            return []

    async def _work(self, container: str, one: _Executor, fresh: set[tuple[int, str]]) -> None:
        loop = asyncio.get_running_loop()
        try:
            for pid, program in fresh:
                if self._closing:
                    return
                ready, jvm, why = await loop.run_in_executor(self._threads, self._examine, one.user, pid, program)
                if ready:
                    one.known[pid, program] = jvm
                if why:
                    self._note("heap follows badly", container=container, pid=pid, why=why)
            for jvm, wanted in one.due(self._share, self._clock()):
                if self._closing:
                    return
                why = await loop.run_in_executor(self._threads, self._set, jvm, wanted)
                if why and jvm.failures in (1, _GIVE_UP_AFTER):
                    self._note("heap not set", container=container, pid=jvm.pid, why=why, times=jvm.failures)
        finally:
            one.worker = None

    def _examine(self, user: str, pid: int, program: str) -> tuple[bool, _Jvm | None, str]:
        """Return whether the process could be identified; its JVM; why its heap will not follow properly."""
        try:
            account = look_up(user)
            is_jvm = _is_jvm(pid, account)
            if not is_jvm:
                starts = Path(program).name == "java"  # it may not have mapped the library of a JVM yet
                return is_jvm is False and not starts, None, ""
            jcmd = _jcmd(program, account)
            if jcmd is None:
                return True, None, "no jcmd on this host that belongs to root; install a JDK (openjdk-17-jdk-headless)"
            flags = self._run(account, (jcmd, *_LIGHT, str(pid), "VM.flags"))
        except (FileNotFoundError, ProcessLookupError):
            return True, None, ""  # it ended meanwhile
        except (OSError, KeyError) as error:
            return True, None, str(error)
        most = re.search(r"-XX:MaxHeapSize=(\d+)", flags)
        if most is None:
            return True, None, f"its flags cannot be read: {' '.join(flags.split())[:200]}"
        return True, _Jvm(pid, account, jcmd, int(most[1]), counted_at=self._clock()), _shortcoming(flags)

    def _set(self, jvm: _Jvm, wanted: int) -> str:
        """Set the soft maximum; return why it could not be set, or ""."""
        jvm.count_change(wanted, self._clock())  # even if it fails: tried again with the next change
        try:
            output = self._run(
                jvm.account, (jvm.jcmd, *_LIGHT, str(jvm.pid), "VM.set_flag", "SoftMaxHeapSize", str(wanted))
            )
        except OSError as error:
            output = str(error)
        if "executed successfully" in output:
            jvm.failures = 0
            return ""
        jvm.failures += 1
        return " ".join(output.split())[:200]


def run_as(account: Account, argv: tuple[str, ...], stop: int | None = None) -> str:
    """Run a command as a user, inheriting nothing but standard output; return its output.

    Takes at most half a minute: a JVM that lacks processors is slow to answer. It is killed once ``stop`` is readable.

    Raises:
        OSError: it cannot be started, takes too long (TimeoutError), or was stopped (InterruptedError).
    """
    other: dict[str, Any] = {}
    if os.geteuid() != account.uid:
        other = {"user": account.uid, "group": account.gid, "extra_groups": account.groups}
    if (setpriv := shutil.which("setpriv", path=_PATH)) is not None:
        argv = (setpriv, "--no-new-privs", *argv)
    deadline = time.monotonic() + _TIMEOUT_S
    join_new_session_keyring()  # for this thread; the command inherits it, and its user may trace the command
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/",
        env={"PATH": _PATH, "HOME": account.home, "USER": account.name}, start_new_session=True, **other,
    )  # fmt: skip
    try:
        return _read(process, deadline, stop)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _read(process: subprocess.Popen[bytes], deadline: float, stop: int | None) -> str:
    """Read its output up to a limit: a user's process may write without end."""
    assert process.stdout is not None
    descriptor, output = process.stdout.fileno(), b""
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    if stop is not None:
        ready.register(stop, select.POLLIN)
    while len(output) < _MOST_ANSWER_BYTES:
        left_ms = 1000 * (deadline - time.monotonic())
        if left_ms <= 0 or not (readable := ready.poll(left_ms)):
            raise TimeoutError(f"it does not answer within {_TIMEOUT_S:g} s")
        if any(each == stop for each, _ in readable):
            raise InterruptedError("the agent ends, and it has not answered yet")
        if not (piece := os.read(descriptor, _MOST_ANSWER_BYTES)):
            break
        output += piece
    return output.decode("utf-8", "replace")


def _planned_bytes(plan: Plan, before: int) -> int:
    """Return the plan's memory: rises at once, falls only to the maximum for a while, so that a dip has no effect."""
    now, soon = int(plan.amounts[0].memory_bytes), int(plan.highest(0.0, _DIP_S).memory_bytes)
    return now if now >= before else min(before, soon)


def _limit_bytes(record: ContainerRecord) -> int:
    limits = (record.limits.memory_high_bytes, record.limits.memory_max_bytes)
    return min((limit for limit in limits if limit is not None), default=0)


def _program(pid: int) -> tuple[int, str] | None:
    """Return the process and its present executable; None: it is gone."""
    try:
        return pid, os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - the target need not exist here
    except OSError:
        return None


def _is_jvm(pid: int, account: Account) -> bool | None:
    """Return whether the process is a JVM of the user's; None: it is starting, and jcmd's SIGQUIT would kill it.

    Raises:
        OSError: it is gone.
    """
    process = Path(f"/proc/{pid}")
    if process.stat().st_uid != account.uid or b"libjvm.so" not in (process / "maps").read_bytes():
        return False
    return _catches_quit((process / "status").read_bytes()) or None


def _catches_quit(status: bytes) -> bool:
    """Return whether SIGQUIT is caught (SigCgt of proc(5)): HotSpot's attach mechanism sends it."""
    caught = re.search(rb"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGQUIT - 1) & 1)


def _jcmd(program: str, account: Account) -> str | None:
    """Return the jcmd of the JVM's JDK, or the host's; files not owned by root only if the agent runs as the user."""
    for found in (str(Path(program).with_name("jcmd")), shutil.which("jcmd", path=_PATH)):
        if found is not None and os.access(found, os.X_OK):
            path = Path(found).resolve()
            if os.geteuid() == account.uid or all(_of_root(part) for part in (path, *path.parents)):
                return str(path)
    return None


def _of_root(path: Path) -> bool:
    found = path.stat()
    return found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _shortcoming(flags: str) -> str:
    """Return why memory does not return as fast as a profile needs it."""
    if "-XX:+UseShenandoahGC" in flags:
        return ""
    if "-XX:+UseZGC" not in flags:
        return f"its collector gives memory back at full collections only; {_FOLLOWS}"
    delay = re.search(r"-XX:ZUncommitDelay=(\d+)", flags)
    delay_s = int(delay[1]) if delay is not None else _UNCOMMIT_DEFAULT_S
    if delay_s > 2 * _UNCOMMIT_WISH_S or "-XX:-ZUncommit" in flags:
        return f"ZGC gives memory back after {delay_s} s; {_FOLLOWS}"
    return ""
