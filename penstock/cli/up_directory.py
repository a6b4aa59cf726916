"""The directory of a running ``penstock up``, and the removal of those that killed ones have left."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.errors import CommandError
from penstock.locking import claim

_PREFIX = "penstock-up-"
#: The process that uses a directory holds the lock of this file in it.
_LOCK = "lock"


@contextlib.contextmanager
def own_directory() -> Iterator[Path]:
    """Make a private directory for temporary files, and remove it in the end, as well as those of killed processes.

    It has its name only once it is locked, so that no other process takes it for one that is not used any more.

    Raises:
        CommandError: it cannot be made.
    """
    try:
        parent = Path(tempfile.gettempdir())
        _remove_abandoned(parent)
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        lock = claim(made / _LOCK, "")
    except OSError as error:
        why = error.strerror or error
        remedy = "make room there, or set TMPDIR" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "set TMPDIR"
        raise CommandError(f"no temporary directory can be made: {why}; {remedy}") from error
    directory = made.rename(parent / made.name.removeprefix("."))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Remove the user's directories whose process has ended. One without a lock may be of an older version, in use."""
    for directory in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = directory.lstat()
            if status.st_uid != os.geteuid() or not (directory / _LOCK).is_file():
                continue
            lock = claim(directory / _LOCK, "it is used")
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)
