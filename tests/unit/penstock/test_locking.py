"""The lock of a file: held by one process, also where the disk is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.locking import AlreadyOwnedError, claim


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_holder_is_named(tmp_path: Path) -> None:
    held = claim(tmp_path / "lock", "in use")
    with pytest.raises(AlreadyOwnedError, match=rf"in use \(held by process {os.getpid()}\)$"):
        claim(tmp_path / "lock", "in use")
    os.close(held)


def test_a_full_disk_keeps_no_process_from_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", _full)
    held = claim(tmp_path / "lock", "in use")
    with pytest.raises(AlreadyOwnedError, match=r"in use$"):
        claim(tmp_path / "lock", "in use")
    os.close(held)
