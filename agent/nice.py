"""Nice values of a container's processes: they order jobs where no cpu controller weighs their cgroups.

Opportunistic work has the policy SCHED_IDLE there, below all nice values (sched(7), Linux 2.6.23).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable

import psutil

from agent.core.instructions import Renice
from agent.launcher.adopt import descendants

#: The links of ``/proc/PID/task`` with one thread in it (proc_task_getattr(), Linux 2.6).
_LINKS_OF_ONE = 3


def can_rank(controllers: Collection[str]) -> bool:
    """Return whether the kernel can order jobs: by cgroups with these controllers, or by nice values."""
    return "cpu" in controllers or os.geteuid() == 0


def host_processes() -> list[int]:
    """Return all processes of the host."""
    return psutil.pids()


def carry_out(rank: Renice, among: Callable[[], Iterable[int]] = host_processes) -> str:
    """Carry out Renice; ``among`` and the result are those of :func:`renice`."""
    if rank.opportunistic is None:
        return _give(rank, None, among)
    policy = os.SCHED_IDLE if rank.opportunistic else os.SCHED_OTHER
    why = _give(rank, policy, among)
    return _give(rank, policy, among) or why  # again, for a process just started with the former policy


class NiceValues:
    """The containers whose processes have the nice value 0 that they were started with.

    Most containers are alone on the host and keep it, so nothing is read or set for them.
    """

    def __init__(self) -> None:
        self._unchanged: set[str] = set()

    def started(self, container: str, pid: int) -> None:
        """Note a new container: its processes inherit the launcher's nice value, and their session's is 0."""
        nice = 0  # a container whose first process has ended already is being killed
        with contextlib.suppress(ProcessLookupError):
            nice = os.getpriority(os.PRIO_PROCESS, pid)
        if nice == 0:
            self._unchanged.add(container)

    def drop(self, container: str) -> None:
        """Drop a container that has ended or is removed."""
        self._unchanged.discard(container)

    def give(self, rank: Renice, among: Callable[[], Iterable[int]] = host_processes) -> str:
        """Carry out Renice, unless it changes nothing; ``among`` and the result are those of :func:`renice`."""
        if rank.container in self._unchanged:
            if rank.nice == 0 and rank.opportunistic is None:
                return ""
            self._unchanged.discard(rank.container)
        return carry_out(rank, among)


def _give(rank: Renice, policy: int | None, among: Callable[[], Iterable[int]]) -> str:
    if rank.adopted:
        return renice_tree(rank.pid, rank.nice, rank.apart, policy=policy)
    return renice(rank.pid, rank.nice, policy=policy, among=among)


def renice(
    session: int, nice: int, *, policy: int | None = None, among: Callable[[], Iterable[int]] = host_processes
) -> str:
    """Give every process of a session a nice value; return the reason of a failure, or "".

    ``policy`` is their new scheduling policy; None: unchanged. ``among`` returns the processes that may be in the
    session: those of the container's cgroup, if it has one, as the host may have many others.

    The launcher starts each container in a session of its own. Where the kernel weighs sessions (sched(7), autogroup,
    Linux 2.6.38), a nice value counts within the session only, and the session's own value between sessions: so both
    are set. Lowering a value needs CAP_SYS_NICE, as does setting another user's.
    """
    try:
        if os.getsid(session) != session:
            return f"process {session} leads no session"
    except ProcessLookupError:
        pass  # its session may live on
    why = _weigh(session, nice)
    return _set(_sessions(_listed(among)).get(session, ()), nice, policy) or why


def renice_tree(first: int, nice: int, apart: Collection[int] = (), *, policy: int | None = None) -> str:
    """Give a process and its descendants a nice value, except ``apart`` and theirs; return as :func:`renice`.

    A session is weighed, too, if all of its processes are among these. A login session, for example, has others; where
    the kernel weighs sessions, the nice value then counts only relative to those.
    """
    members = set(tree(first, apart))
    why = ""
    for pids in _sessions(host_processes()).values():
        if members.issuperset(pids):
            why = _weigh(pids[0], nice) or why
    return _set(sorted(members), nice, policy) or why


def tree(first: int, apart: Collection[int] = ()) -> list[int]:
    """Return a process and its descendants that run now, except ``apart`` and the agent, and theirs."""
    return [first, *descendants([first], {*apart, os.getpid()})]


def _listed(among: Callable[[], Iterable[int]]) -> Iterable[int]:
    """Return the processes; all of the host's where a cgroup does not list its own: a threaded one gives EOPNOTSUPP
    (cgroup_procs_show(), Linux 4.14).
    """
    try:
        return among()
    except OSError:
        return host_processes()


def _sessions(pids: Iterable[int]) -> dict[int, list[int]]:
    """Return session → its processes among ``pids``."""
    found: dict[int, list[int]] = {}
    for pid in pids:
        try:
            found.setdefault(os.getsid(pid), []).append(pid)
        except ProcessLookupError:
            continue  # it ended meanwhile
    return found


def _weigh(member: int, nice: int) -> str:
    """Weigh the session of a process; return the reason of a failure, or ""."""
    try:
        descriptor = os.open(f"/proc/{member}/autogroup", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, str(nice).encode())
        finally:
            os.close(descriptor)
    except (FileNotFoundError, ProcessLookupError):
        pass  # a kernel without autogroup, or all processes have ended
    except OSError as error:
        return f"the session of {member} cannot be weighed: {error.strerror}"
    return ""


def _threads(pid: int) -> list[int]:
    """Return the threads of a process. The directory's number of links shows whether it has only one, as most have.

    Raises:
        FileNotFoundError: it has ended.
    """
    tasks = f"/proc/{pid}/task"
    if os.stat(tasks).st_nlink == _LINKS_OF_ONE:  # noqa: PTH116 - as below
        return [pid]
    return [int(thread) for thread in os.listdir(tasks)]  # noqa: PTH208 - a third of the time


def _set(pids: Iterable[int], nice: int, policy: int | None) -> str:
    """Set values per thread: Linux applies PRIO_PROCESS to one thread (setpriority(2))."""
    for pid in pids:
        try:
            threads = _threads(pid)
        except FileNotFoundError:
            continue  # it ended meanwhile
        for thread in threads:
            try:
                if policy is not None:
                    os.sched_setscheduler(thread, policy, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, thread, nice)
            except ProcessLookupError:
                continue
            except PermissionError as error:
                return f"process {pid} cannot be reniced: {error.strerror}"
    return ""
