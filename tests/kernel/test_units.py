"""The units as they are installed, on this kernel: their restrictions take no limit from the agent.

Other tests of the units are in tests/cluster/test_running.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm_commands

_UNITS = Path(__file__).parents[2] / "systemd"
_INSTALLED = Path("/run/systemd/system")
_DAEMONS = ("penstock-containers", "penstock-agent")


@pytest.fixture(scope="module")
def agent() -> Iterator[None]:
    """It serves, in its unit."""
    files = [_INSTALLED / f"{daemon}.service" for daemon in _DAEMONS]
    prefix, configuration = Path("/opt/penstock"), Path("/etc/penstock")
    prefix.mkdir()
    configuration.mkdir()
    try:
        for file in files:
            file.write_text((_UNITS / file.name).read_text())
        for name in ("agent", "containers"):
            (prefix / name).symlink_to(sys.prefix)
        (configuration / "agent.toml").write_text("")
        _systemctl("daemon-reload")
        _systemctl("start", "penstock-agent")
        yield
    finally:
        _systemctl("stop", *_DAEMONS)
        for file in (*files, configuration / "agent.toml", prefix / "agent", prefix / "containers"):
            file.unlink(missing_ok=True)
        prefix.rmdir()
        configuration.rmdir()
        _systemctl("daemon-reload")


@pytest.mark.usefixtures("agent")
def test_the_agent_in_its_unit_can_enforce_all_that_root_can() -> None:
    facts = _json_of("check", "--json")
    enforced = _json_of("status", "--json")["enforcement"]
    lost = {name: fact["why"] for name, fact in enforced.items() if facts[name]["ok"] and not fact["ok"]}
    assert not lost
    assert {"cpu", "cpuset", "memory", "disk", "network", "pressure"} <= {
        name for name, fact in enforced.items() if fact["ok"]
    }


@pytest.mark.usefixtures("agent")
def test_the_unit_s_limits_hold_its_work() -> None:
    said = _penstock(
        "run", "--memory", "64M", "--", "sh", "-c", "cat /sys/fs/cgroup$(cut -d: -f3 </proc/self/cgroup)/memory.max"
    )
    assert (said.stdout, said.returncode) == (f"{64 * 2**20}\n", 0), said.stderr


@pytest.mark.usefixtures("agent")
def test_its_memory_is_protected_by_all_that_is_above_it() -> None:
    done = subprocess.run(
        ["systemctl", "show", "--value", "--property=ControlGroup", "penstock-agent"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    top = Path("/sys/fs/cgroup")
    cgroup = top / done.stdout.strip().lstrip("/")
    least = [int((each / "memory.min").read_text()) for each in (cgroup, *cgroup.parents) if top in each.parents]
    assert least and min(least) >= 64 * 2**20


def _json_of(*arguments: str) -> dict[str, Any]:
    return dict(json.loads(_penstock(*arguments).stdout))


def _penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [warm_commands.penstock(), *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)


def _systemctl(*arguments: str) -> None:
    """Shown is why a unit did not start."""
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        log = subprocess.run(
            ["journalctl", "--no-pager", "--lines=40", "--unit=penstock-*"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        pytest.fail(f"systemctl {' '.join(arguments)}: {done.stderr}{log.stdout}")
