"""The playbook and the units, on a real machine: deployed, used, killed, deployed again.

One machine for all tests here; they build on each other, in this order.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.vm.checkout import build_wheel
from tests.vm.image import ROOT
from tests.vm.machine import Machine

pytestmark = pytest.mark.timeout(1800)
#: What `penstock` and the daemons are in the machine.
_PENSTOCK = "/opt/penstock/venv/bin/penstock"


@dataclass(frozen=True)
class Deployed:
    """A machine, and what deploys to it."""

    machine: Machine
    inventory: Path
    wheel: Path

    def play(self) -> dict[str, int]:
        """Run the playbook; the machine's line of its recap."""
        started = time.monotonic()
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(self.inventory), "site.yml",
             "-e", f"penstock_venv_wheel={self.wheel}", "-e", "penstock_venv_wheelhouse=/opt/wheelhouse"],
            cwd=ROOT / "ansible", env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=1500,
        )  # fmt: skip
        print(f"{done.stdout}{done.stderr}\nplaybook: {time.monotonic() - started:.0f} s")
        if done.returncode != 0:
            print(self.machine.ssh("journalctl --no-pager --lines 60 --unit 'penstock-*'", check=False).stdout)
        assert done.returncode == 0, "the playbook failed; see above"
        recap = re.search(r"^vm\s*:(.*)$", done.stdout, re.MULTILINE)
        assert recap is not None
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", recap[1])}

    def main_pid(self, unit: str) -> int:
        """The unit's process; 0 while there is none."""
        return int(self.machine.ssh(f"systemctl show --property MainPID --value {unit}").stdout)

    def as_user(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as somebody without privileges."""
        return self.machine.ssh(f"cd /home/tester && runuser -u tester -- {command}", check=False)

    def healthy(self, port: int) -> bool:
        """Whether /healthz says so, asked in the machine: elsewhere than on loopback the pages want TLS and a token."""
        ask = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}/healthz', timeout=60).status)"
        return self.machine.ssh(f'/opt/penstock/venv/bin/python -c "{ask}"').stdout.strip() == "200"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """A fresh machine with the playbook run once."""
    directory = tmp_path_factory.mktemp("deploy")
    agent = {"master": "127.0.0.1:7420", "tls": "off"}
    master = {"listen": "127.0.0.1:7420", "tls": "off"}
    with Machine() as machine:
        inventory = directory / "inventory.json"
        host = {
            "ansible_become": False,  # ssh opens root's account; there is no sudo in the machine
            "ansible_ssh_args": "",
            "ansible_ssh_common_args": f"-F {machine.ssh_config}",
            "penstock_agent_config": agent,
            "penstock_master_config": master,
        }
        groups = {name: {"hosts": {"vm": host}} for name in ("penstock_masters", "penstock_agents")}
        inventory.write_text(json.dumps(groups))
        deployed = Deployed(machine, inventory, build_wheel(directory))
        deployed.play()
        yield deployed


@pytest.mark.parametrize("unit", ["penstock-master", "penstock-agent", "penstock-containers"])
def test_every_unit_runs_and_starts_at_boot(deployed: Deployed, unit: str) -> None:
    assert deployed.machine.ssh(f"systemctl is-active {unit}", check=False).stdout.strip() == "active"
    assert deployed.machine.ssh(f"systemctl is-enabled {unit}", check=False).stdout.strip() == "enabled"


@pytest.mark.parametrize("port", [7421, 7422])
def test_both_daemons_are_healthy(deployed: Deployed, port: int) -> None:
    assert deployed.healthy(port)


@pytest.mark.parametrize(("unit", "most"), [("penstock-master", 2.0), ("penstock-agent", 4.0)])
def test_what_a_daemon_does_not_need_is_closed_to_it(deployed: Deployed, unit: str, most: float) -> None:
    said = deployed.machine.ssh(f"systemd-analyze --no-pager security {unit}.service").stdout
    found = re.search(r"Overall exposure level for .*: ([0-9.]+) ", said)
    assert found is not None and float(found[1]) <= most, said


@pytest.mark.parametrize("daemon", ["agent", "master"])
def test_the_journal_has_what_a_daemon_says_as_fields(deployed: Deployed, daemon: str) -> None:
    asked = f"journalctl --unit penstock-{daemon} --output json --lines 1 'PENSTOCK_EVENT={daemon} started'"
    entry = json.loads(deployed.machine.ssh(asked).stdout)
    assert entry["PRIORITY"] == "6" and ":" in entry["PENSTOCK_HTTP"], entry


def test_what_is_closed_to_the_agent_takes_no_limit_from_it(deployed: Deployed) -> None:
    """What root could enforce on this host, the agent in its unit can, too."""
    facts = json.loads(deployed.machine.ssh(f"{_PENSTOCK} check --json", check=False).stdout)
    enforced = json.loads(deployed.as_user(f"{_PENSTOCK} status --json").stdout)["enforcement"]
    lost = {name: fact["why"] for name, fact in enforced.items() if facts[name]["ok"] and not fact["ok"]}
    assert not lost
    assert {"cpu", "memory"} <= {name for name, fact in enforced.items() if fact["ok"]}


@pytest.mark.parametrize(
    ("daemon", "line", "port"), [("agent", "t_alloc = 0.75", 7421), ("master", 'ordering = "fair"', 7422)]
)
def test_a_reload_takes_what_the_file_says_now(deployed: Deployed, daemon: str, line: str, port: int) -> None:
    file, unit = f"/etc/penstock/{daemon}.toml", f"penstock-{daemon}"
    before = deployed.main_pid(unit)
    heard = f"until journalctl -q -u {unit} --since @$(stat -c %Y {file}) | grep 'configuration reloaded'; do :; done"
    said = deployed.machine.ssh(
        f"cp -p {file} {file}.before && echo '{line}' >>{file} && {_PENSTOCK} config check {daemon} {file} && "
        f'systemctl reload {unit} && timeout 120 sh -c "{heard}"; mv {file}.before {file}; systemctl reload {unit}'
    ).stdout
    assert line.rsplit(maxsplit=1)[-1].strip('"') in said
    assert deployed.main_pid(unit) == before and deployed.healthy(port)


def test_a_command_runs_as_the_user_who_asked(deployed: Deployed) -> None:
    done = deployed.as_user(f"{_PENSTOCK} run -- sh -c 'echo hello from $(id -un)'")
    assert (done.stdout, done.returncode) == ("hello from tester\n", 0), done.stderr


def test_a_container_lives_on_when_the_agent_is_killed(deployed: Deployed) -> None:
    machine = deployed.machine
    before = deployed.main_pid("penstock-agent")
    started = deployed.as_user(f"{_PENSTOCK} run --detach -- sleep 1000")
    assert started.returncode == 0, started.stderr
    container = machine.ssh("pgrep -x -u tester sleep").stdout.split()
    machine.ssh(f"kill -KILL {before}")
    after = _restarted(deployed, before)
    assert after != before
    assert machine.ssh("pgrep -x -u tester sleep").stdout.split() == container
    assert deployed.healthy(7421)
    status = json.loads(deployed.as_user(f"{_PENSTOCK} status --json").stdout)
    assert "sleep" in json.dumps(status), "the new agent knows the container"


def test_the_second_run_changes_nothing_and_ends_nothing(deployed: Deployed) -> None:
    before = deployed.machine.ssh("pgrep -x -u tester sleep").stdout
    pids = [deployed.main_pid(unit) for unit in ("penstock-agent", "penstock-master", "penstock-containers")]
    recap = deployed.play()
    assert (recap["changed"], recap["failed"], recap["unreachable"]) == (0, 0, 0)
    assert [deployed.main_pid(unit) for unit in ("penstock-agent", "penstock-master", "penstock-containers")] == pids
    assert deployed.machine.ssh("pgrep -x -u tester sleep").stdout == before


def test_a_restart_of_the_agent_ends_nothing(deployed: Deployed) -> None:
    before = deployed.machine.ssh("pgrep -x -u tester sleep").stdout
    deployed.machine.ssh("systemctl restart penstock-agent")
    assert deployed.machine.ssh("pgrep -x -u tester sleep").stdout == before


def test_all_comes_back_when_the_owner_of_the_containers_is_killed(deployed: Deployed) -> None:
    agent, owner = (deployed.main_pid(unit) for unit in ("penstock-agent", "penstock-containers"))
    deployed.machine.ssh(f"kill -KILL {owner}")
    _restarted(deployed, agent)
    assert deployed.main_pid("penstock-containers") not in {0, owner}
    assert deployed.machine.ssh("pgrep -x -u tester sleep", check=False).stdout == "", "its containers end with it"
    done = deployed.as_user(f"{_PENSTOCK} run --memory 64M -- echo again")
    assert (done.stdout, done.returncode) == ("again\n", 0), done.stderr


def _restarted(deployed: Deployed, before: int) -> int:
    """The agent's process once systemd calls its successor active: the machine itself waits for that."""
    deployed.machine.ssh(
        f"timeout 120 sh -c 'until systemctl is-active -q penstock-agent && "
        f'[ "$(systemctl show --property MainPID --value penstock-agent)" != {before} ]; do :; done\''
    )
    return deployed.main_pid("penstock-agent")
