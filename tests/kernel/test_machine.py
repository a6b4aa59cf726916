"""The machine is what the other kernel tests rely on; and a skip among them cannot go unnoticed."""

from __future__ import annotations

import os
import shutil
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


def test_somebody_without_privileges_exists() -> None:
    done = subprocess.run(["runuser", "-u", "tester", "--", "id", "-u"], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 1000


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
@pytest.mark.parametrize("where", ["in a test", "in a module"])
def test_a_skip_fails_in_ci_and_only_there(tmp_path: Path, ci: str, status: int, where: str) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    skips = {
        "in a test": "import pytest\ndef test_it(): pytest.skip('why')\ndef test_other(): pass\n",
        "in a module": "import pytest\npytest.skip('why', allow_module_level=True)\n",
    }
    (tmp_path / "test_skips.py").write_text(skips[where])
    (tmp_path / "test_runs.py").write_text("def test_runs(): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "CI": ci}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode != 0) == (status != 0), done.stdout
