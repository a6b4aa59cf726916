"""The units: how much stays open in each, as systemd-analyze counts it; the playbook installs these very files."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "systemd").glob("*.service"))
#: The agent keeps root, cgroups, the network, and other users' processes: its work. A restriction of the containers'
#: unit would apply to the work of users, too.
MOST = {"penstock-master.service": 2.0, "penstock-agent.service": 4.0, "penstock-containers.service": 9.0}


def test_every_unit_is_known() -> None:
    assert {unit.name for unit in UNITS} == set(MOST)


def analyze(unit: Path, *options: str) -> str:
    """Return the output of ``systemd-analyze security`` on the file."""
    command = ["systemd-analyze", "--no-pager", "security", "--offline=true", *options, str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze reads no files (it is older than 250)")
    assert done.stdout, done.stderr
    return done.stdout


def explained(unit: Path) -> set[str]:
    """The words of its comments."""
    comments = re.findall(r"^#.*$", unit.read_text(encoding="utf-8"), re.MULTILINE)
    return {word for line in comments for word in re.findall(r"[@\w-]+", line)}


def names(exposure: str) -> list[str]:
    """How a comment may call it: ``CapabilityBoundingSet=~CAP_SYS_(NICE|RESOURCE)`` is SYS_NICE or SYS_RESOURCE."""
    if found := re.fullmatch(r"\w+=~(?:CAP_)?(@?[\w-]*)(?:\(([^)]*)\))?", exposure):
        return [found[1] + each for each in (found[2] or "").split("|")]
    return [each for each in re.split(r"[=/]+", exposure) if each]


@pytest.mark.parametrize(
    ("exposure", "called"),
    [
        ("CapabilityBoundingSet=~CAP_SYS_(NICE|RESOURCE)", ["SYS_NICE", "SYS_RESOURCE"]),
        ("CapabilityBoundingSet=~CAP_(DAC_*|FOWNER)", ["DAC_*", "FOWNER"]),
        ("CapabilityBoundingSet=~CAP_KILL", ["KILL"]),
        ("SystemCallFilter=~@raw-io", ["@raw-io"]),
        ("RestrictAddressFamilies=~AF_(INET|INET6)", ["AF_INET", "AF_INET6"]),
        ("RootDirectory=/RootImage=", ["RootDirectory", "RootImage"]),
        ("ProcSubset=", ["ProcSubset"]),
    ],
)
def test_an_exposure_has_names(exposure: str, called: list[str]) -> None:
    assert names(exposure) == called


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("daemon", ["agent", "master"])
def test_a_right_that_stays_is_explained_in_a_comment(daemon: str) -> None:
    """Everything that systemd-analyze marks with a cross; of the containers' unit it is explained once for all."""
    unit = ROOT / "systemd" / f"penstock-{daemon}.service"
    words = explained(unit)
    crosses = [check["name"] for check in json.loads(analyze(unit, "--json=short")) if check["set"] is False]
    assert crosses
    silent = [name for name in crosses if not any(fnmatch.filter(words, each) for each in names(name))]
    assert silent == []


@pytest.mark.parametrize("daemon", ["agent", "master"])
def test_every_capability_is_explained_in_a_comment(daemon: str) -> None:
    unit = ROOT / "systemd" / f"penstock-{daemon}.service"
    (kept,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
    assert {each.removeprefix("CAP_") for each in kept.split()} <= explained(unit)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_no_right_that_it_does_not_need(unit: Path) -> None:
    said = analyze(unit)
    found = re.search(r"Overall exposure level for .*: ([0-9.]+) ", said)
    assert found is not None and float(found[1]) <= MOST[unit.name], said


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_playbook_installs_it(unit: Path) -> None:
    copies = list((ROOT / "ansible").rglob(unit.name))
    assert copies and all(file.read_text() == unit.read_text() for file in copies)


@pytest.mark.parametrize("daemon", ["agent", "master"])
def test_a_daemon_reloads_by_sighup_and_is_watched(daemon: str) -> None:
    lines = (ROOT / "systemd" / f"penstock-{daemon}.service").read_text().splitlines()
    assert {"ExecReload=/bin/kill -HUP $MAINPID", "Type=notify", "WatchdogSec=60", "TimeoutStartSec=300"} <= set(lines)
