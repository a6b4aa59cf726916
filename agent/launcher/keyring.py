"""A session keyring for each container (keyrings(7), Linux 2.6.10).

A session keyring is inherited through fork, exec and changes of the user. Without its own one, a container could find,
use and revoke the keys of all other containers of the launcher, of any user.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform

#: keyctl(2); 219 on newer architectures (arm64, riscv64, loongarch64).
_SYS_KEYCTL = {"x86_64": 250, "ppc64le": 271, "s390x": 280}.get(platform.machine(), 219)
_JOIN_SESSION_KEYRING = 1  # linux/keyctl.h
#: Errors of a kernel without keyrings, and of a system call filter, which applies to the container, too.
_NO_KEYRINGS = (errno.ENOSYS, errno.EPERM)
_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def join_new_session_keyring() -> None:
    """Replace this process's session keyring by a new one, which is empty and has no name.

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
