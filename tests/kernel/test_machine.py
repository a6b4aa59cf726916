"""The machine is what the other kernel tests rely on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

_CGROUP = Path("/sys/fs/cgroup")


def test_every_controller_is_there() -> None:
    controllers = set((_CGROUP / "cgroup.controllers").read_text().split())
    assert controllers >= {"cpuset", "cpu", "io", "memory", "pids"}


@pytest.mark.parametrize("resource", ["cpu", "io", "memory"])
def test_pressure_is_measured(resource: str) -> None:
    assert Path(f"/proc/pressure/{resource}").read_text().startswith("some avg10=")


def test_a_second_disk_is_mounted_for_limits_on_devices() -> None:
    assert Path("/scratch").stat().st_dev != Path("/").stat().st_dev


def test_somebody_without_privileges_exists() -> None:
    done = subprocess.run(["runuser", "-u", "tester", "--", "id", "-u"], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 1000
