"""Files that are replaced whole: a reader finds the data before or the data after, never a part of it."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write all bytes to a temporary file beside ``path``, and rename it. The mode is 0600.

    Nothing is synced: a crash of the host may undo it, or leave an empty file.

    Raises:
        OSError: with ``path`` as its file name; the content before is still there, and no temporary file is left.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)
        fresh.replace(path)
    except OSError as error:
        _discard(fresh)
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write_all(descriptor: int, data: bytes) -> None:
    """Write on after a short count, which a disk that gets full gives before it refuses."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _discard(fresh: Path) -> None:
    try:
        fresh.unlink(missing_ok=True)
    except OSError:  # a directory of that name, or a file system that is read-only by now
        return
