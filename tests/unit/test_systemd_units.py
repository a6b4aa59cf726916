"""The units: how much stays open in each, as systemd-analyze counts it; the playbook installs these very files."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "systemd").glob("*.service"))
#: What is left of the agent is root, cgroups, the network, and other users' processes: its work. What is closed to the
#: containers' unit would be closed to the work of users, too.
MOST = {"penstock-master.service": 2.0, "penstock-agent.service": 4.0, "penstock-containers.service": 9.0}


def test_every_unit_is_known() -> None:
    assert {unit.name for unit in UNITS} == set(MOST)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_a_unit_does_not_need_is_closed(unit: Path) -> None:
    command = ["systemd-analyze", "--no-pager", "security", "--offline=true", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze reads no files (it is older than 250)")
    found = re.search(r"Overall exposure level for .*: ([0-9.]+) ", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= MOST[unit.name], done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_playbook_installs_it(unit: Path) -> None:
    copies = list((ROOT / "ansible").rglob(unit.name))
    assert copies and all(file.read_text() == unit.read_text() for file in copies)


@pytest.mark.parametrize("daemon", ["agent", "master"])
def test_a_daemon_reloads_by_sighup_and_is_watched(daemon: str) -> None:
    lines = (ROOT / "systemd" / f"penstock-{daemon}.service").read_text().splitlines()
    assert {"ExecReload=/bin/kill -HUP $MAINPID", "Type=notify", "WatchdogSec=60"} <= set(lines)
