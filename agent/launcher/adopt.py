"""Adopt a process that another program started, and find out how a process ended that is not a child of the launcher.

A pid may be reused by the time it is used. So a pidfd is opened first: if its process still exists afterwards, it was
the one that was checked and moved.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import struct
from collections.abc import Callable, Collection, Iterable

from agent.cgroup_root import is_group
from agent.launcher.messages import Adopt
from agent.launcher.rounds import each_once

#: linux/pidfd.h: PIDFD_GET_INFO with the first published size, PIDFD_INFO_EXIT (6.15), and the offset of its answer.
_PIDFD_GET_INFO, _INFO_BYTES, _INFO_EXIT, _EXIT_CODE_AT = 0xC040FF0B, 64, 1 << 3, 60
_EXIT_CODE_FIELD = 52 - 3  # of /proc/PID/stat (proc(5)), counted after the command's name


class NotAdoptable(Exception):  # noqa: N818 - describes a state
    """Why a process cannot be adopted: one line for its user."""


def adopt(asked: Adopt, procs_fd: int | None, ours: Iterable[int], tree: str | None, *, together: bool = False) -> int:
    """Move a process into the cgroup whose ``cgroup.procs`` is open as ``procs_fd``, if there is one.

    Args:
        asked: the process, and its required owner.
        procs_fd: None: the process is only watched.
        ours: pids of Penstock itself.
        tree: the containers' cgroup, as in /proc/PID/cgroup.
        together: only descendants in the process's own cgroup.

    Returns:
        Its pidfd.

    Raises:
        NotAdoptable: one line that says why; some processes may have been moved nevertheless.
    """

    if asked.pid == 1 or asked.pid in ours:
        raise NotAdoptable(f"process {asked.pid} is the host's init or Penstock's own")
    try:
        only_from = cgroup_of(asked.pid) if together else None
    except ProcessLookupError:
        raise NotAdoptable(f"there is no process {asked.pid}") from None

    def take(pid: int) -> int:
        return _take(pid, procs_fd, lambda: _check(pid, asked.uid, asked.user, tree, only_from))

    pidfd = take(asked.pid)
    if asked.tree and procs_fd is not None and not _take_descendants(asked.pid, frozenset(ours), take):
        os.close(pidfd)
        raise NotAdoptable(
            f"the descendants of process {asked.pid} fork faster than they can be moved; adopt it once they rest, "
            "or start it in a container"
        )
    return pidfd


def exit_code(pid: int, pidfd: int) -> int | None:
    """Return how a process that is not our child ended: as Popen.returncode, None if unknown.

    Until its parent has reaped it, the status is in /proc; afterwards the kernel returns it through a pidfd (6.15).
    """
    status = _exit_code_of_zombie(pid, pidfd)
    if status is None:
        status = _exit_code_by_pidfd(pidfd)
    return os.waitstatus_to_exitcode(status) if status is not None else None


# ---------------------------------------------------------------- one process


def _take(pid: int, procs_fd: int | None, check: Callable[[], None]) -> int:
    pidfd = _open(pid)
    try:
        check()
        if procs_fd is not None:
            os.write(procs_fd, b"%d" % pid)
        signal.pidfd_send_signal(pidfd, 0)  # Linux 5.1; ESRCH: the process checked or moved may have been another one
    except ProcessLookupError:
        os.close(pidfd)
        raise NotAdoptable(f"process {pid} has ended") from None
    except OSError as error:
        os.close(pidfd)
        raise NotAdoptable(f"process {pid} cannot be moved: {os.strerror(error.errno or 0)}") from None
    except NotAdoptable:
        os.close(pidfd)
        raise
    return pidfd


def _open(pid: int) -> int:
    try:
        return os.pidfd_open(pid)  # Linux 5.3
    except OverflowError:
        raise NotAdoptable(f"there is no process {pid}") from None
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:  # ENOENT since 6.15
            raise NotAdoptable(f"{pid} is a thread; name its process") from None
        raise NotAdoptable(f"there is no process {pid}" if error.errno == errno.ESRCH else f"{pid}: {error}") from None


def _check(pid: int, uid: int, user: str, tree: str | None, only_from: str | None) -> None:
    """Check that the user may have this process adopted; ``only_from``: and that it is in this cgroup.

    Raises:
        NotAdoptable: it may not.
        ProcessLookupError: it has ended.
    """
    status = _status(pid)
    uids = [int(number) for number in status["Uid"].split()[:3]]  # real, effective, saved
    if uid != 0 and uids != [uid] * 3:
        raise NotAdoptable(f"process {pid} does not belong to {user} alone")
    if status["State"].startswith(("Z", "X")):
        raise ProcessLookupError
    if "VmSize" not in status:
        raise NotAdoptable(f"process {pid} is a kernel thread")
    if len(status["NSpid"].split()) != len(_status(os.getpid())["NSpid"].split()):  # Linux 4.1
        raise NotAdoptable(f"process {pid} is in a pid namespace (a container) of its own")
    if tree is not None and (where := cgroup_of(pid)).startswith(tree):
        inside = next((name for name in where[len(tree) :].split("/") if not is_group(name)), "")
        raise NotAdoptable(f"process {pid} is in container {inside!r} already")
    if only_from is not None and cgroup_of(pid) != only_from:
        raise NotAdoptable(f"process {pid} is in another cgroup")


def _status(pid: int) -> dict[str, str]:
    lines = _read(pid, "status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def may_signal(uid: int, pid: int) -> bool:
    """Return whether a user may signal a process (kill(2)): whether its real or saved user is this one.

    Raises:
        ProcessLookupError: it has ended.
    """
    real, _, saved, _ = map(int, _status(pid)["Uid"].split())
    return uid in {0, real, saved}


def cgroup_of(pid: int) -> str:
    """Return a process's cgroup v2 path below the mount, "" if there is none.

    Raises:
        ProcessLookupError: it has ended.
    """
    found = (line for line in _read(pid, "cgroup").splitlines() if line.startswith("0::"))
    return next(found, "0::")[3:]


def _read(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as in account.py
            return file.read()
    except FileNotFoundError:
        raise ProcessLookupError from None


# ---------------------------------------------------------------- its descendants


def _take_descendants(pid: int, ours: frozenset[int], take: Callable[[int], int]) -> bool:
    """Move the descendants, parents first: children forked by a moved process are already in the cgroup.

    Return whether all were found.
    """

    def move(one: int) -> None:
        if one not in ours:
            with contextlib.suppress(NotAdoptable):  # it ended, is another user's, or is in a container
                os.close(take(one))

    return each_once(lambda known: descendants(known, apart=known), move, (pid,))


def descendants(pids: Collection[int], apart: Collection[int]) -> list[int]:
    """Return the descendants of processes that run now, parents first; without ``apart`` and theirs."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                children.setdefault(int(_stat(int(name))[1]), []).append(int(name))
            except ProcessLookupError:
                continue
    found = [*pids]
    for pid in found:
        found += [child for child in children.get(pid, ()) if child not in apart]
    return found[len(pids) :]


def _stat(pid: int) -> list[str]:
    """Return the fields after the command's name, which may contain any characters."""
    return _read(pid, "stat").rpartition(")")[2].split()


# ---------------------------------------------------------------- its end


def _exit_code_of_zombie(pid: int, pidfd: int) -> int | None:
    try:
        fields = _stat(pid)
        signal.pidfd_send_signal(pidfd, 0)  # not reaped yet, so it was the right one
    except (ProcessLookupError, PermissionError):
        return None
    return int(fields[_EXIT_CODE_FIELD]) if fields[0] == "Z" else None


def _exit_code_by_pidfd(pidfd: int) -> int | None:
    info = bytearray(_INFO_BYTES)
    struct.pack_into("=Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    has_code = struct.unpack_from("=Q", info)[0] & _INFO_EXIT
    return int(struct.unpack_from("=i", info, _EXIT_CODE_AT)[0]) if has_code else None
