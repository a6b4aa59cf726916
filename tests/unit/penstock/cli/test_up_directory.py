"""The directory of `penstock up`: those of killed ones are removed, and none that is used."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.errors import CommandError
from penstock.cli.up_directory import own_directory

KILLED = """
import os, signal
from penstock.cli.up_directory import own_directory
with own_directory() as directory:
    (directory / "agent.json").write_text("{}")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_directory_of_a_killed_one_is_removed_by_the_next(temporary: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(temporary)}, check=False)
    assert done.returncode == -9
    (left,) = temporary.iterdir()
    with own_directory() as directory:
        assert [*temporary.iterdir()] == [directory] != [left]
        (directory / "agent.json").write_text("{}")
    assert [*temporary.iterdir()] == []


def test_one_that_is_used_or_may_be_is_not_removed(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_older_version = temporary / "penstock-up-older"
    of_older_version.mkdir()
    (temporary / "penstock-up-file").touch()
    with own_directory() as used, own_directory() as other:
        assert {used, other, of_older_version} < {*temporary.iterdir()}
    of_another_user = temporary / "penstock-up-other"
    of_another_user.mkdir()
    (of_another_user / "lock").touch()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 4711)
        with own_directory():
            assert of_another_user.exists()
    with own_directory():
        assert not of_another_user.exists() and of_older_version.exists()


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (errno.ENOSPC, "No space left on device; make room there, or set TMPDIR"),
        (errno.EACCES, "Permission denied; set TMPDIR"),
    ],
)
def test_a_directory_that_cannot_be_made_gets_one_line(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, number: int, line: str
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("tempfile.mkdtemp", fail)
    with pytest.raises(CommandError, match=f"be made: {line}$"), own_directory():
        pass
