"""From fork to exec: the way of a command into its cgroup, session, user and environment.

The launcher has one thread and few pages, so a plain fork is safe and quick; the child enters its cgroup before
anything else, so that not one instruction or page of the command is charged elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import signal
from typing import NoReturn

from agent.launcher.messages import Start

_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h, Linux 3.5
_libc = ctypes.CDLL(None, use_errno=True)
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NotStartable(Exception):  # noqa: N818 - it reads as what it says
    """Why a command cannot be started: one line for its user."""


def prepare(start: Start) -> tuple[pwd.struct_passwd, list[int], dict[str, str]]:
    """What must be looked up before the fork: the user, its groups, its environment.

    Raises:
        NotStartable: no such user, or one that we may not become.
    """
    try:
        user = pwd.getpwnam(start.user)
    except KeyError:
        raise NotStartable(f"user {start.user!r} is not known on this host") from None
    if os.geteuid() not in (0, user.pw_uid):
        raise NotStartable(f"an agent that is not root cannot start work as {start.user!r}")
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    environment = {
        "PATH": _ROOT_PATH if user.pw_uid == 0 else _DEFAULT_PATH,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell or "/bin/sh",
        **start.env,
    }
    return user, groups, environment


def spawn(start: Start, procs_fd: int | None, stdio: tuple[int, int, int]) -> int:
    """Fork and exec; the pid once the command itself runs.

    Raises:
        NotStartable: a step on the way failed; says which.
    """
    user, groups, environment = prepare(start)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(start, user, groups, environment, procs_fd, stdio, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        failure = pipe.read()
    if not failure:
        return pid  # the pipe closed by itself: exec happened
    os.waitpid(pid, 0)
    raise NotStartable(failure.decode(errors="replace"))


def _become(
    start: Start,
    user: pwd.struct_passwd,
    groups: list[int],
    environment: dict[str, str],
    procs_fd: int | None,
    stdio: tuple[int, int, int],
    report: int,
) -> NoReturn:
    """In the child. Every failure is one line through the pipe; nothing returns to the launcher's loop."""
    step = ""
    try:
        step = "cannot enter its cgroup"
        if procs_fd is not None:
            os.write(procs_fd, b"0")
        step = "cannot start a session"
        os.setsid()
        step = "cannot take over its descriptors"
        _take_descriptors(stdio, report)
        report = 3
        step = f"cannot become user {user.pw_name!r}"
        _drop_to(user, groups)
        step = f"cannot enter directory {start.cwd!r}"
        os.chdir(start.cwd)
        step = f"cannot run {start.argv[0]!r}"
        os.execvpe(start.argv[0], list(start.argv), environment)  # noqa: S606 - that is the launcher's work
    except OSError as error:
        text = f"{step}: {os.strerror(error.errno or 0)}"
        if isinstance(error, FileNotFoundError) and step.startswith("cannot run"):
            text = f"command not found: {start.argv[0]!r}"
        os.write(report, text.encode(errors="replace"))
    except ValueError as error:  # a NUL in an argument
        os.write(report, f"{step}: {error}".encode(errors="replace"))
    finally:
        os._exit(127)


def _take_descriptors(stdio: tuple[int, int, int], report: int) -> None:
    """0, 1, 2 as passed, the report pipe as 3 (closed by exec), nothing else."""
    high = [os.dup(fd) for fd in (*stdio, report)]  # out of the way of each other
    while min(high) < 8:
        high = [os.dup(fd) for fd in high]
    for target, descriptor in enumerate(high[:3]):
        os.dup2(descriptor, target, inheritable=True)
    os.dup2(high[3], 3, inheritable=False)
    os.closerange(4, max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def _drop_to(user: pwd.struct_passwd, groups: list[int]) -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o022)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if os.geteuid() == 0:
        os.setgroups(groups)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
