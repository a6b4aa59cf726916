"""Nice values of a container's processes: what orders jobs where no cpu controller weighs their cgroups.

Below them all is the policy SCHED_IDLE (sched(7), Linux 2.6.23), which opportunistic work has there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

from agent.core.instructions import Renice
from agent.launcher.adopt import parents

PROC = Path("/proc")


def can_rank(controllers: Collection[str]) -> bool:
    """Whether the kernel can be told the order of jobs: by cgroups that have these controllers, or by nice values."""
    return "cpu" in controllers or os.geteuid() == 0


def carry_out(rank: Renice) -> str:
    """See Renice; return as :func:`renice`."""
    if rank.opportunistic is None:
        return _give(rank, None)
    policy = os.SCHED_IDLE if rank.opportunistic else os.SCHED_OTHER
    why = _give(rank, policy)
    return _give(rank, policy) or why  # again: what a process had just started had its policy of before


def _give(rank: Renice, policy: int | None) -> str:
    if rank.adopted:
        return renice_tree(rank.pid, rank.nice, rank.apart, policy=policy)
    return renice(rank.pid, rank.nice, policy=policy)


def renice(session: int, nice: int, proc: Path = PROC, *, policy: int | None = None) -> str:
    """Give every process of a session a nice value; return what cannot be done, and why, or nothing.

    ``policy`` is the scheduling policy that they have from now on; None: what they have.

    The launcher starts each container in a session of its own. Where the kernel weighs sessions (sched(7), autogroup,
    Linux 2.6.38), a nice value counts within the session only, and the session's own counts between sessions: so both
    are set. Lowering one needs CAP_SYS_NICE, as does setting another user's.
    """
    try:
        if os.getsid(session) != session:
            return f"process {session} leads no session"
    except ProcessLookupError:
        pass  # its session may live on
    why = _weigh(session, nice, proc)
    return _set(_sessions().get(session, ()), nice, proc, policy) or why


def renice_tree(
    first: int, nice: int, apart: Collection[int] = (), proc: Path = PROC, *, policy: int | None = None
) -> str:
    """Give a process and its descendants a nice value, but for the ``apart`` and theirs; return as :func:`renice`.

    A session is weighed, too, if all of its processes are among these: in a login's, say, there are others, and where
    the kernel weighs sessions the nice value then counts only beside these.
    """
    members = set(tree(first, apart))
    why = ""
    for pids in _sessions().values():
        if members.issuperset(pids):
            why = _weigh(pids[0], nice, proc) or why
    return _set(sorted(members), nice, proc, policy) or why


def tree(first: int, apart: Collection[int] = ()) -> list[int]:
    """A process and its descendants that run now, but for the ``apart`` and the agent, and theirs."""
    apart = {*apart, os.getpid()}
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found = [first]
    for pid in found:
        found += [child for child in children.get(pid, ()) if child not in apart]
    return found


def _sessions() -> dict[int, list[int]]:
    """Session → its processes."""
    found: dict[int, list[int]] = {}
    for pid in psutil.pids():
        try:
            found.setdefault(os.getsid(pid), []).append(pid)
        except ProcessLookupError:
            continue  # it ended meanwhile
    return found


def _weigh(member: int, nice: int, proc: Path) -> str:
    """Weigh the session of a process."""
    try:
        (proc / str(member) / "autogroup").write_text(str(nice))
    except (FileNotFoundError, ProcessLookupError):
        pass  # a kernel without it, or nobody is left
    except OSError as error:
        return f"the session of {member} cannot be weighed: {error.strerror}"
    return ""


def _set(pids: Iterable[int], nice: int, proc: Path, policy: int | None) -> str:
    """Each thread has a nice value of its own: Linux takes PRIO_PROCESS for one thread (setpriority(2))."""
    for pid in pids:
        try:
            threads = [int(thread.name) for thread in (proc / str(pid) / "task").iterdir()]
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
