"""``penstock up`` under systemd: its daemons are in a scope, and the containers in another one, which yields."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.kernel.host_bed import running_host, until

pytestmark = [pytest.mark.timeout(400), pytest.mark.measured]  # all is ten to thirty times slower under emulation
_LOOP = ["taskset", "--cpu-list", "0", "sh", "-c", "while :; do :; done"]
_MOUNT = Path("/sys/fs/cgroup")


def _cgroup(pid: int) -> Path:
    return _MOUNT / Path(f"/proc/{pid}/cgroup").read_text().strip().removeprefix("0::/")


def _cpu_s(cgroup: Path) -> float:
    return int((cgroup / "cpu.stat").read_text().split()[1]) / 1e6


def test_opportunistic_work_through_penstock_up_is_behind_all_other_processes(tmp_path: Path) -> None:
    with running_host(tmp_path, typed=True) as host:
        archive = host.penstock("run", "--detach", "--opportunistic", "--name", "archive", "--", *_LOOP)
        assert archive.returncode == 0, archive.stderr
        inside = _cgroup(host.container("archive")["pid"])
        scope = inside.parents[1]
        assert (scope.name.startswith("penstock-containers-"), scope.parent) == (True, _MOUNT)
        assert (scope / "cpu.idle").read_text() == "1\n"
        assert not (scope / "daemons").exists()

        with subprocess.Popen(
            _LOOP
        ) as other:  # in the cgroup of this test, as a command at a terminal is in a session's
            try:
                ours = _cgroup(other.pid)
                before = _cpu_s(inside), _cpu_s(ours)
                time.sleep(4.0)  # nothing tells of time that passes
                archive_s, other_s = _cpu_s(inside) - before[0], _cpu_s(ours) - before[1]
            finally:
                other.kill()
        assert archive_s < other_s / 20, (archive_s, other_s)

        regular = host.penstock("run", "--detach", "--name", "regular", "--", *_LOOP)
        assert regular.returncode == 0, regular.stderr
        assert (scope / "cpu.idle").read_text() == "0\n"
        host.penstock("kill", archive.stdout.strip())
        host.penstock("kill", regular.stdout.strip())
    assert not scope.exists(), "systemd removes a scope without processes"


def test_containers_start_after_the_launcher_died_and_its_scope_with_it(tmp_path: Path) -> None:
    with running_host(tmp_path, typed=True) as host:
        (scope,) = _MOUNT.glob("penstock-containers-*")
        launcher = int((scope / "holder/cgroup.procs").read_text())
        os.kill(launcher, signal.SIGKILL)
        until(lambda: host.penstock("run", "--", "true").returncode == 0, "no container starts any more")
        limited = host.penstock("run", "--cpu", "0.5", "--", "cat", "/proc/self/cgroup")
        assert limited.returncode == 0, limited.stderr
        assert "/containers/" in limited.stdout
