"""Lock files: one daemon owns a directory or a file, and the kernel releases it however the daemon ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class AlreadyOwnedError(FileExistsError):
    """Another process holds the lock: one line with the remedy."""


def claim(path: Path, taken: str) -> int:
    """Take the lock of a file, which is made if it is missing, and return the descriptor that holds it.

    ``taken`` is the error's text when another process holds the lock: it names the remedy. The holder's process id
    follows it, unless the disk was full when the holder took the lock.

    Raises:
        AlreadyOwnedError: another process holds the lock.
        OSError: the file cannot be opened, or is a symbolic link.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise AlreadyOwnedError(f"{taken} (held by process {holder})" if holder.isdigit() else taken) from None
    except OSError:
        os.close(descriptor)
        raise
    with contextlib.suppress(OSError):  # a full disk: the lock is held nevertheless
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
