"""From fork to exec: put a command into its cgroup, session, keyring, user and environment.

The launcher has one thread and few pages, so a plain fork is safe and fast; the child enters its cgroup first, so that
no instruction or page of the command is charged elsewhere. Operations that may take long (a user database on the
network, a hung file system, a throttled cgroup) happen in the child: the launcher waits for its report in its event
loop.

Every page that the child writes to is copied first, and Python writes to objects that it only reads. So state common to
all children is set up once, in the launcher, and as much as possible is computed before the fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from typing import NamedTuple, NoReturn

import msgpack

from agent.launcher.account import Account, Accounts, look_up
from agent.launcher.messages import Start
from agent.launcher.session import kill_session
from agent.launcher.syscalls import fork_into, join_new_session_keyring

_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h, Linux 3.5
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: As in a shell: the command does not exist, or cannot be executed. Earlier failures have no exit status.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_STANDARD = (0, 1, 2)
#: Characters of a name in a line for its user.
_MOST_SHOWN = 128
_OOM_SCORE_ADJ = "/proc/self/oom_score_adj"  # Linux 2.6.36


class NotStartable(Exception):  # noqa: N818 - describes a state
    """Why a command cannot be started: one line for its user."""


class Spawner:
    """Forks children; their common state is set up once, in this process."""

    def __init__(self) -> None:
        """Set up this process, permanently.

        Raises:
            OSError: the kernel refuses.
        """
        self.accounts = Accounts()
        while os.open(os.devnull, os.O_RDWR) <= _STANDARD[-1]:
            pass  # so that passed descriptors do not get the standard numbers
        for number in signal.valid_signals() - {signal.SIGCHLD}:
            if signal.getsignal(number) is signal.SIG_IGN:
                # Ignored by Python, nohup or a shell's background job: exec resets a handler, but not SIG_IGN.
                signal.signal(number, _nothing)
        signal.signal(signal.SIGINT, _nothing)  # a terminal's Ctrl-C is meant for the agent
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(0o022)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # one descriptor per container
        self._files = (soft, hard) if soft != hard else None
        self._oom = os.open(_OOM_SCORE_ADJ, os.O_RDONLY | os.O_CLOEXEC)

    def spawn(self, start: Start, procs_fd: int | None, stdio: tuple[int, int, int]) -> tuple[int, int, int]:
        """Fork a child for a command.

        Returns:
            The pid, a pidfd, and a descriptor to read to its end: the MessagePack values ``["account", …]`` if
            :attr:`accounts` had none, and ``["failed", line, exit status]`` if the command does not run. In both cases,
            the child must be reaped.

        Raises:
            OSError: no process can be created, or none that could be watched.
        """
        account = self.accounts.get(start.user)
        execution = _execution(start, account) if account is not None else None
        oom = self._oom_score_adj(start.oom_score_adj)
        reading, report = os.pipe2(os.O_CLOEXEC)
        try:
            pid, entered = _fork(procs_fd)
            if pid == 0:
                self._become(start, execution, None if entered else procs_fd, stdio, oom, report)
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(report)
        try:
            return pid, os.pidfd_open(pid), reading  # Linux 5.3; it takes the place of the pipe's other end
        except OSError:  # a limit of the host: without a pidfd, the child's end would not be seen
            os.close(reading)
            with contextlib.suppress(OSError):
                kill_session(pid)
            os.waitpid(pid, 0)
            raise

    def _oom_score_adj(self, asked: int) -> bytes | None:
        """Return the value that a child has to write; None if it inherits it.

        A launcher protected by its unit (OOMScoreAdjust=) does not pass that on; a more exposed one does.
        """
        own = int(os.pread(self._oom, 16, 0))
        return b"%d" % asked if asked > own else None

    def _become(
        self,
        start: Start,
        execution: Execution | None,
        procs_fd: int | None,
        stdio: tuple[int, int, int],
        oom: bytes | None,
        report: int,
    ) -> NoReturn:
        """Become the command, in the child. Every failure is one line through the pipe; this never returns."""
        step = "cannot enter its cgroup"
        try:
            if procs_fd is not None:
                os.write(procs_fd, b"0")
            step = "cannot start a session"
            os.setsid()
            step = "cannot join a session keyring of its own"
            join_new_session_keyring()
            step = "cannot take over its descriptors"
            for passed, standard in zip(stdio, _STANDARD, strict=True):
                os.dup2(passed, standard)  # exec closes all others, including the report's
            for passed in set(stdio):  # the steps below open files, and these may have been the last free descriptors
                os.close(passed)
            step = "cannot set its limits"
            if oom is not None:
                os.write(os.open(_OOM_SCORE_ADJ, os.O_WRONLY | os.O_CLOEXEC), oom)
            step = f"cannot become user {_shown(start.user)}"
            if execution is None:
                execution = _execution(start, _look_up(start.user, report))
            _become_user(execution.account)
            step = "cannot set its limits"
            if self._files is not None:  # last: with many containers, all numbers below this limit are in use here
                resource.setrlimit(resource.RLIMIT_NOFILE, self._files)
            step = f"cannot enter directory {_shown(start.cwd)}"
            os.chdir(start.cwd)
            step = f"cannot run {_shown(start.argv[0])}"
            _execute(execution)
        except OSError as error:
            _fail(report, start.argv[0], step, error)
        except NotStartable as error:
            _report(report, "failed", str(error), None)
        except Exception as error:  # noqa: BLE001 - top level of the process: a NUL in an argument, no memory
            _report(report, "failed", f"{step}: {error}", None)
        finally:
            os._exit(_NOT_FOUND)


def _fork(procs_fd: int | None) -> tuple[int, bool]:
    """Return the pid, 0 in the child; and whether the child starts inside the cgroup."""
    if procs_fd is not None:
        with contextlib.suppress(OSError):
            return fork_into(procs_fd), True
    return os.fork(), False


class Execution(NamedTuple):
    """Values computed before the fork: the candidate files of the command, in order, and its environment."""

    account: Account
    argv: list[str]
    files: list[str]
    environment: dict[str, str]


def _nothing(*_: object) -> None:
    """Do nothing; unlike SIG_IGN, a handler is not inherited through exec."""


def _report(report: int, *what: object) -> None:
    os.write(report, msgpack.packb(what))


def _shown(text: str) -> str:
    """Quote a name. Written out, one of a megabyte would be an answer that no socket takes."""
    return repr(text) if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]!r}…"


def _fail(report: int, command: str, step: str, error: OSError) -> None:
    line, status = f"{step}: {os.strerror(error.errno or 0)}", None
    if step.startswith("cannot run"):
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        status = _NOT_FOUND if missing else _NOT_EXECUTABLE
        if missing and "/" not in command:  # a path that does not exist may also lack its interpreter
            line = f"command not found: {_shown(command)}"
    _report(report, "failed", line, status)


def _look_up(user: str, report: int) -> Account:
    """Look up an account, and report it to the launcher.

    Raises:
        NotStartable: no such user.
    """
    try:
        account = look_up(user)
    except KeyError:
        raise NotStartable(f"user {_shown(user)} is not known on this host") from None
    _report(report, "account", *account)
    return account


def _become_user(account: Account) -> None:
    """Change to the user's groups and ids, permanently.

    Raises:
        NotStartable: the launcher may not become that user.
    """
    own = os.geteuid()
    if own == 0:
        os.setgroups(account.groups)
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
    elif own != account.uid:
        raise NotStartable(f"a launcher that is not root cannot start work as {account.name!r}")


def _execution(start: Start, account: Account) -> Execution:
    environment = {
        "PATH": _ROOT_PATH if account.uid == 0 else _DEFAULT_PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        **start.env,
    }
    files = [command := start.argv[0]]
    if "/" not in command:  # an empty entry of PATH is the current directory
        files = [f"{place}/{command}" if place else command for place in environment["PATH"].split(":")]
    return Execution(account, [*start.argv], files, environment)


def _execute(execution: Execution) -> None:
    """Execute like execvp(3): the first executable file; if there is none, raise an error other than a missing file.

    Raises:
        OSError: the reason.
    """
    reason: OSError | None = None
    for file in execution.files:
        try:
            os.execve(file, execution.argv, execution.environment)  # noqa: S606 - the launcher's purpose
        except OSError as error:
            if reason is None or isinstance(reason, FileNotFoundError | NotADirectoryError):
                reason = error
    assert reason is not None
    raise reason
