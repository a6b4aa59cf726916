"""System calls that :mod:`os` lacks: a fork into a cgroup (clone3, Linux 5.7), a session keyring (keyctl, 2.6.10)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct

_SYS_CLONE3 = 435  # on every architecture
_CLONE_INTO_CGROUP = 0x2_0000_0000  # linux/sched.h
_CLONE_ARGS = struct.Struct("=11Q")  # flags, pidfd, child_tid, parent_tid, exit_signal, stack…, tls, set_tid…, cgroup
#: keyctl(2); 219 on newer architectures (arm64, riscv64, loongarch64).
_SYS_KEYCTL = {"x86_64": 250, "ppc64le": 271, "s390x": 280}.get(platform.machine(), 219)
_JOIN_SESSION_KEYRING = 1  # linux/keyctl.h
#: Errors of a kernel without keyrings, and of a system call filter, which applies to the container, too.
_NO_KEYRINGS = (errno.ENOSYS, errno.EPERM)
#: PyDLL keeps the interpreter's lock: a forked child must not find it released in the middle of the call.
_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def fork_into(procs_fd: int) -> int:
    """Do os.fork() for a process with one thread; the child starts in the cgroup whose ``cgroup.procs`` is open.

    The alternative, writing ``0`` into ``cgroup.procs`` after a fork, waits for an RCU grace period on all processors
    unless processes were moved recently: 10 to 50 ms on a host with cgroup v2 only.

    Raises:
        OSError: the kernel cannot do this, here or at all; forking and then entering the cgroup reveals the reason.
    """
    directory = os.path.dirname(os.readlink(f"/proc/self/fd/{procs_fd}"))  # noqa: PTH115, PTH120 - as in account.py
    cgroup = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        arguments = _CLONE_ARGS.pack(_CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, cgroup)
        # The equivalent of os.fork(). glibc's own part of fork(), which clone3 lacks, only concerns other threads.
        ctypes.pythonapi.PyOS_BeforeFork()
        pid = int(_syscall(_SYS_CLONE3, arguments, len(arguments)))
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
        else:
            ctypes.pythonapi.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return pid
    finally:
        os.close(cgroup)


def join_new_session_keyring() -> None:
    """Replace this process's session keyring by a new one, which is empty and has no name (keyrings(7)).

    A session keyring is inherited through fork, exec and changes of the user. Without its own one, a container could
    find, use and revoke the keys of all other containers of the launcher, of any user.

    The kernel counts it among the keys of this process's user: 1,000,000 for root, 200 for other users
    (``kernel.keys``). So root calls this before it becomes the container's user, who may use the keyring nevertheless,
    because the container possesses it. A launcher that is not root has containers of its own user only: those beyond
    that number keep the launcher's keyring.

    Raises:
        OSError: the kernel has keyrings, and cannot create one.
    """
    if _syscall(_SYS_KEYCTL, ctypes.c_long(_JOIN_SESSION_KEYRING), None) < 0:
        number = ctypes.get_errno()
        if number not in _NO_KEYRINGS and (number != errno.EDQUOT or os.geteuid() == 0):
            raise OSError(number, os.strerror(number))
