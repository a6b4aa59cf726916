"""A machine that hangs on its way up, or before it can be used."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.vm import checkout, machine
from tests.vm.machine import Machine
from tests.vm.remote import BootError, Remote


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


class Standing(Machine):
    """A machine that takes nothing once it is up; ``takes`` for one that does."""

    def __init__(self, *, takes: bool) -> None:
        super().__init__()
        self._takes = takes

    def ssh_command(self, command: str) -> list[str]:
        return ["true"] if self._takes else ["sleep", "infinity"]

    def console(self) -> str:
        return "watchdog: BUG: soft lockup"


@pytest.mark.parametrize("standing", [1, 2])
def test_a_machine_that_does_not_take_the_checkout_gives_way_to_another_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], standing: int
) -> None:
    monkeypatch.setattr(checkout, "_INSTALL_TIMEOUT_S", 1.0)
    monkeypatch.setattr(checkout, "pack", lambda archive: None)
    did: list[str] = []

    @contextmanager
    def make() -> Iterator[Remote]:
        did.append("up")
        try:
            yield Standing(takes=did.count("up") > standing)
        finally:
            did.append("down")

    if standing == 1:
        with checkout.machine_with_checkout(make):
            assert did == ["up", "down", "up"]
    else:
        with pytest.raises(BootError, match="did not take the checkout"), checkout.machine_with_checkout(make):
            pass
    assert did == ["up", "down", "up", "down"]
    assert "soft lockup" in capsys.readouterr().err
