"""Fork a child into a cgroup (clone3, Linux 5.7).

The alternative, writing ``0`` into ``cgroup.procs`` after a fork, waits for an RCU grace period on all processors
unless processes were moved recently: 10 to 50 ms on a host with cgroup v2 only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct

_SYS_CLONE3 = 435  # on every architecture
_CLONE_INTO_CGROUP = 0x2_0000_0000  # linux/sched.h
_CLONE_ARGS = struct.Struct("=11Q")  # flags, pidfd, child_tid, parent_tid, exit_signal, stack…, tls, set_tid…, cgroup
#: PyDLL keeps the interpreter's lock: the child must not find it released in the middle of the call.
_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def fork_into(procs_fd: int) -> int:
    """Do os.fork() for a process with one thread; the child starts in the cgroup whose ``cgroup.procs`` is open.

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
