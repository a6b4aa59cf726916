"""Room that the file system keeps for a file (fallocate(2)), so that writing to it does not fail on a full disk.

A copy-on-write file system (btrfs, ZFS) may refuse a write to the reserved room nevertheless: it takes other room for
the data, or for its own records.
"""

from __future__ import annotations

import ctypes
import errno
import os

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE: os.posix_fallocate, which has no such flag, would lengthen the file
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def reserve(descriptor: int, begin_bytes: int, more_bytes: int) -> None:
    """Reserve room from an offset in the file on; the file keeps its size. No effect where the file system cannot do
    so. If it has too little room, it may keep a part of the reservation.

    Raises:
        OSError: it has no such room.
    """
    while _libc.fallocate(descriptor, _KEEP_SIZE, begin_bytes, more_bytes):
        number = ctypes.get_errno()
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(number, os.strerror(number))
        if number != errno.EINTR:  # by a signal: tmpfs takes back what it has reserved until then
            return
