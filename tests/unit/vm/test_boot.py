"""A machine that hangs on its way up."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.vm import machine
from tests.vm.machine import Machine
from tests.vm.remote import BootError


def test_a_boot_that_hangs_is_repeated_once_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noting(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        process = popen(command, **options)  # type: ignore[call-overload]
        if any("qemu" in word for word in command):
            started.append(process)
        return process  # type: ignore[no-any-return]

    monkeypatch.setattr(machine, "_BOOT_TIMEOUT_S", 0.1)  # no machine is that quick: to the harness it hangs
    monkeypatch.setattr(subprocess, "Popen", noting)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(BootError, match="did not come up"), Machine():
        pass
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)
    assert "booting again" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
