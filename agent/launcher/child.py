"""From fork to exec: the way of a command into its cgroup, session, user and environment.

The launcher has one thread and few pages, so a plain fork is safe and quick; the child enters its cgroup before
anything else, so that not one instruction or page of the command is charged elsewhere. Whatever may take long (a user
database on the network, a hung file system, a cgroup that is throttled) happens in the child: the launcher only waits
for its report, together with everything else it waits for.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import select
import signal
from typing import NoReturn

from agent.launcher.messages import Start

_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h, Linux 3.5
_libc = ctypes.CDLL(None, use_errno=True)
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Python's own, the launcher's, and what whoever started it may have ignored (nohup, a shell's background jobs).
_CHANGED_SIGNALS = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM} | {
    number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN
}
#: Where the report pipe is in the child, right after stdin, stdout, stderr.
_REPORT = 3


class NotStartable(Exception):  # noqa: N818 - it reads as what it says
    """Why a command cannot be started: one line for its user."""


def spawn(start: Start, procs_fd: int | None, stdio: tuple[int, int, int]) -> tuple[int, int]:
    """Fork.

    Returns:
        The pid, and a descriptor to read until its end: empty once the command itself runs, else the line that says
        why it does not. The child is to be reaped either way.

    Raises:
        OSError: no process can be had.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
        if pid == 0:
            _become(start, procs_fd, stdio, writing)
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return pid, reading


def _become(start: Start, procs_fd: int | None, stdio: tuple[int, int, int], report: int) -> NoReturn:
    """In the child. Every failure is one line through the pipe; nothing returns to the launcher's loop."""
    step = "cannot enter its cgroup"
    try:
        signal.set_wakeup_fd(-1)  # a signal to the child is none to the launcher
        if procs_fd is not None:
            os.write(procs_fd, b"0")
        step = "cannot start a session"
        os.setsid()
        step = "cannot take over its descriptors"
        report = _take_descriptors(stdio, report)
        step = f"cannot become user {start.user!r}"
        environment = _become_user(start)
        step = f"cannot enter directory {start.cwd!r}"
        os.chdir(start.cwd)
        step = f"cannot run {start.argv[0]!r}"
        os.execvpe(start.argv[0], list(start.argv), environment)  # noqa: S606 - that is the launcher's work
    except FileNotFoundError as error:
        missing = step.startswith("cannot run") and _is_name(start.argv[0])
        _say(report, f"command not found: {start.argv[0]!r}" if missing else f"{step}: {error.strerror}")
    except OSError as error:
        _say(report, f"{step}: {os.strerror(error.errno or 0)}")
    except NotStartable as error:
        _say(report, str(error))
    except Exception as error:  # noqa: BLE001 - the root of the process: a NUL in an argument, no memory
        _say(report, f"{step}: {error}")
    finally:
        os._exit(127)


def _say(report: int, line: str) -> None:
    os.write(report, line.encode(errors="replace")[: select.PIPE_BUF])  # so that it is read at once


def _is_name(command: str) -> bool:
    """What is looked for along PATH; a path that is not there may also lack its interpreter."""
    return "/" not in command


def _take_descriptors(stdio: tuple[int, int, int], report: int) -> int:
    """0, 1, 2 as passed, the report pipe behind them; returns its new number. exec closes it and all others."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for fd in (*stdio, report)]  # out of the way of each other
    for target, descriptor in enumerate(high):
        os.dup2(descriptor, target, inheritable=target != _REPORT)
    return _REPORT


def _become_user(start: Start) -> dict[str, str]:
    """Rights, signals and umask of a fresh session of the user; its environment.

    Raises:
        NotStartable: no such user, or one that we may not become.
    """
    try:
        user = pwd.getpwnam(start.user)
    except KeyError:
        raise NotStartable(f"user {start.user!r} is not known on this host") from None
    if os.geteuid() not in (0, user.pw_uid):
        raise NotStartable(f"a launcher that is not root cannot start work as {start.user!r}")
    for number in _CHANGED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o022)
    _unprotect()
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if os.geteuid() == 0:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    return {
        "PATH": _ROOT_PATH if user.pw_uid == 0 else _DEFAULT_PATH,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell or "/bin/sh",
        **start.env,
    }


def _unprotect() -> None:
    """A daemon that its unit protects from the OOM killer (OOMScoreAdjust=) does not hand that on to its work."""
    score = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    if os.read(score, 16).startswith(b"-"):
        os.write(score, b"0")
