"""The machine has the properties that the other kernel tests rely on."""

from __future__ import annotations

import subprocess
import sys
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


def test_an_unprivileged_user_exists() -> None:
    done = subprocess.run(["runuser", "-u", "tester", "--", "id", "-u"], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 1000


_SCATTERED = """
import mmap, random
pages = list(range(100_000))
random.Random(1).shuffle(pages)
memory = mmap.mmap(-1, len(pages) * mmap.PAGESIZE)
for page in pages:
    memory[page * mmap.PAGESIZE] = 1
print(sum(memory[page * mmap.PAGESIZE] for page in pages))
"""


@pytest.mark.native  # 45 s under emulation, where a process of the machine is no process of the host
def test_a_process_may_consist_of_more_pieces_than_the_host_maps() -> None:
    """Linux maps 65,530 for a process (vm.max_map_count); a page touched out of order is a piece of its own."""
    done = subprocess.run([sys.executable, "-c", _SCATTERED], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "100000\n"
