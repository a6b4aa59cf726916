"""Bare machines with names and a network among themselves, an inventory of them, and the program that runs Ansible's
playbooks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.vm.host import say
from tests.vm.image import ROOT
from tests.vm.user_mode import Network, UserModeMachine
from tests.vm.user_mode_kernel import ensure_kernel

NAMES = ("one.penstock.test", "two.penstock.test", "three.penstock.test")
MASTER = NAMES[0]
#: The target of the link that the playbooks install as /usr/local/bin/penstock.
PENSTOCK = "/opt/penstock/venv/bin/penstock"
_PLAY_TIMEOUT_S = 2400
#: Beside other tests a machine stalls for longer than Ansible's 10 s.
_CONNECT_TIMEOUT_S = "120"
#: So is the time until an agent has its link then: a minute by default.
_PATIENT = ("-e", "penstock_agent_link_retries=300")
_HERE = Path(__file__).parent
#: Ansible's environment for tasks that share a process on each host (mitogen).
_PERSISTENT = {"ANSIBLE_STRATEGY": "patient_linear", "ANSIBLE_STRATEGY_PLUGINS": str(_HERE / "strategy")}
_SURVEY = _HERE / "survey.py"


@dataclass
class Cluster:
    """Three machines, by name; the first is the master's, all are nodes."""

    machines: dict[str, UserModeMachine]
    directory: Path
    variables: dict[str, object] = field(default_factory=dict)
    #: Of one machine, by its name.
    of_one: dict[str, dict[str, object]] = field(default_factory=dict)

    def play(self, playbook: str, *options: str, expect: int = 0, persistent: bool = True) -> dict[str, dict[str, int]]:
        """Play a playbook; return each host's line of its recap. Its output is shown.

        The exit status must be ``expect``. ``persistent`` keeps a Python process on each host for all tasks (mitogen);
        without it each task starts its own, as where only Ansible is installed: two to three times the processor time.
        """
        started = time.monotonic()
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(self._inventory()), playbook,
             *_PATIENT, *options],
            cwd=ROOT / "ansible",
            env={
                **os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORKS": "10", "ANSIBLE_TIMEOUT": _CONNECT_TIMEOUT_S,
                **(_PERSISTENT if persistent else {}),
            },
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_PLAY_TIMEOUT_S,
        )  # fmt: skip
        text = f"{done.stdout}{done.stderr}"
        say(f"{playbook} {' '.join(options)}: {time.monotonic() - started:.0f} s")
        print(text)
        assert "PRIVATE KEY" not in text, "a key is shown"
        if done.returncode != expect:
            for name, machine in self.machines.items():
                print(name, machine.ssh("journalctl --no-pager --lines 40 --unit 'penstock-*'", check=False).stdout)
        assert done.returncode == expect, f"{playbook} ended with {done.returncode}: {'; '.join(failures(text))}"
        return recap(done.stdout)

    def ssh(self, name: str, command: str, *, check: bool = True) -> str:
        """Return the output of root's shell command on a machine."""
        return self.machines[name].ssh(command, check=check, timeout_s=900).stdout

    def everywhere(self, command: str, *, check: bool = True, names: Sequence[str] = NAMES) -> dict[str, str]:
        """Return its output on each machine; the machines are asked at the same time."""
        with ThreadPoolExecutor(len(names)) as threads:
            asked = {name: threads.submit(self.ssh, name, command, check=check) for name in names}
        return {name: answer.result() for name, answer in asked.items()}

    def penstock(self, name: str, command: str, *, user: str = "root") -> str:
        """The same of a command of ours, in its user's directory."""
        return self.ssh(name, f"cd ~{user} && runuser -u {user} -- {PENSTOCK} {command}")

    def pid(self, name: str, unit: str) -> int:
        """The unit's process on a machine; 0 while there is none."""
        return int(self.ssh(name, f"systemctl show --property MainPID --value {unit}"))

    def pids(self) -> dict[tuple[str, str], int]:
        """Of each unit on each machine that has it."""
        units = [(name, unit) for name in NAMES for unit in ("penstock-agent", "penstock-containers")]
        return {each: self.pid(*each) for each in [*units, (MASTER, "penstock-master")]}

    def page(self, name: str, path: str, token: str = "") -> str:
        """Return the master's page as a user on a machine gets it; its status alone where it refuses."""
        code = f"""
import ssl, urllib.error, urllib.request
trusted = ssl.create_default_context(cafile="/etc/penstock/tls/ca.pem")
asked = urllib.request.Request("https://{MASTER}:7422{path}", headers={{"Authorization": "Bearer {token}"}})
try:
    print(urllib.request.urlopen(asked, timeout=60, context=trusted).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""
        return self.ssh(name, f"/usr/bin/python3 - <<'END'{code}END").strip()

    def nodes(self) -> dict[str, dict[str, object]]:
        """Return the nodes as the master has them, requested from another machine with the token of read-only users."""
        token = self.ssh(MASTER, "cat /etc/penstock/master-http-read.token").strip()
        nodes: dict[str, dict[str, object]] = json.loads(self.page(NAMES[-1], "/status", token))["nodes"]
        return nodes

    def survey(self, *names: str) -> dict[str, list[str]]:
        """Return one line for each file, user and unit on each machine, or on some, that an installation may add to."""
        said = self.everywhere(f"/usr/bin/python3 - <<'END'\n{_SURVEY.read_text()}\nEND", names=names or NAMES)
        return {name: lines.splitlines() for name, lines in said.items()}

    def _inventory(self) -> Path:
        hosts: dict[str, dict[str, object]] = {
            name: {
                "ansible_host": "vm",
                "ansible_become": False,  # ssh opens root's account; there is no sudo in the machines
                "ansible_ssh_args": "",
                "ansible_ssh_common_args": f"-F {machine.ssh_config}",
            }
            for name, machine in self.machines.items()
        }
        for name, variables in self.of_one.items():
            hosts[name] |= variables
        groups = {
            "all": {"vars": self.variables},
            "penstock_masters": {"hosts": {MASTER: hosts[MASTER]}},
            "penstock_agents": {"hosts": hosts},
        }
        inventory = self.directory / "inventory.json"
        inventory.write_text(json.dumps(groups))
        return inventory


@contextmanager
def bare_cluster(directory: Path) -> Iterator[Cluster]:
    """Three machines that know each other's names, and nothing of ours on them."""
    ensure_kernel()  # once, not by each of them
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        # To the end: a machine dies with the thread that started it.
        threads = stack.enter_context(ThreadPoolExecutor(len(NAMES)))
        machines = {name: UserModeMachine(network, number) for number, name in enumerate(NAMES, 1)}
        booting = {machine: threads.submit(machine.__enter__) for machine in machines.values()}
        for machine, booted in booting.items():
            if booted.exception() is None:
                stack.push(machine)
        hosts = "".join(f"{machine.address} {name}\n" for name, machine in machines.items())
        for name, machine in machines.items():
            booting[machine].result()
            machine.ssh(f"hostname {name} && printf '{hosts}' >>/etc/hosts")
            # ssh answers before all units have come and gone, and before systemd can be asked.
            up = "systemctl is-system-running --wait | grep -qE 'running|degraded'"
            machine.ssh(f'timeout 300 sh -c "until {up}; do sleep 0.2; done"')
        yield Cluster(machines, directory)


def build_wheel(directory: Path, version: str) -> Path:
    """The wheel of this checkout, as if it were of another version."""
    source = directory / "source"
    for name in ("penstock", "agent", "master", "simulator", "docs/man"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name, line in (("pyproject.toml", 'version = "{}"'), ("penstock/__init__.py", '__version__ = "{}"')):
        text = (source / name).read_text()
        changed = re.sub(rf"^{line.format('.*')}$", line.format(version), text, count=1, flags=re.MULTILINE)
        assert changed != text, f"{name} does not say its version as was thought"
        (source / name).write_text(changed)
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel", "--no-deps",
         "--no-build-isolation", f"--wheel-dir={directory}", str(source)],
        check=True,
    )  # fmt: skip
    shutil.rmtree(source)
    return next(directory.glob(f"penstock-{version}-*.whl"))


def failures(said: str) -> list[str]:
    """Each task that failed, with what it said, of Ansible's output: the whole is too long for an excerpt of a log."""
    tasks = re.finditer(r"^(?:TASK|RUNNING HANDLER) \[(.*)\] \*+\n((?:.+\n)*)", said, re.MULTILINE)
    lines = [(task[1], line) for task in tasks for line in task[2].splitlines()]
    return [f"{task}: {line}" for task, line in lines if re.match(r"fatal:|failed:|ERROR|An exception", line)]


def recap(said: str) -> dict[str, dict[str, int]]:
    """Return the counts that ansible-playbook prints at its end, by host."""
    lines = re.findall(r"^(\S+)\s+: (ok=.*)$", said, re.MULTILINE)
    return {host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)} for host, counts in lines}
