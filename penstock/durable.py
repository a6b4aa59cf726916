"""Files that are replaced whole: a reader finds the data before or the data after, never a part of it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def replace_file(path: Path, data: bytes, mode: int = 0o600, *, like: os.stat_result | None = None) -> None:
    """Write all bytes to a new temporary file beside ``path``, which has its mode from the start, and rename it.

    With ``like``, it gets the owner and the mode of that file, and is synced. Otherwise nothing is: a crash of the host
    may undo it, or leave an empty file.

    Raises:
        OSError: with ``path`` as its file name; the content before is still there, and no temporary file is left.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        descriptor = _create(fresh, mode)
        try:
            rest = memoryview(data)
            while rest:  # a disk that fills up takes a part before it refuses
                rest = rest[os.write(descriptor, rest) :]
            if like is not None:
                os.fchown(descriptor, like.st_uid, like.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # a directory of that name, or a file system that is read-only by now
            fresh.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def _create(fresh: Path, mode: int) -> int:
    """Create a file and return its descriptor; one that is there was left by a process that ended meanwhile."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(fresh, flags, mode)
    except FileExistsError:
        fresh.unlink(missing_ok=True)
        return os.open(fresh, flags, mode)
