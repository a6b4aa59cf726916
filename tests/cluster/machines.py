"""Bare machines with names and a network among themselves, an inventory of them, and what plays Ansible's playbooks."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path

from tests.vm.host import say
from tests.vm.image import ROOT
from tests.vm.machine import Machine

NAMES = ("one.penstock.test", "two.penstock.test", "three.penstock.test")
MASTER = NAMES[0]
_PENSTOCK = "/opt/penstock/venv/bin/penstock"
_PLAY_TIMEOUT_S = 2400
_HERE = Path(__file__).parent
_SURVEY = _HERE / "survey.py"
#: Where the machines have what warm.py tells of.
_WARM = "/root/warm"


@dataclass
class Cluster:
    """Three machines, by name; the first is the master's, all are nodes."""

    machines: dict[str, Machine]
    directory: Path
    variables: dict[str, object] = field(default_factory=dict)

    def play(self, playbook: str, *options: str, expect: int = 0) -> dict[str, dict[str, int]]:
        """Play a playbook; each host's line of its recap. What it says is shown, its exit status must be ``expect``."""
        started = time.monotonic()
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(self._inventory()), playbook, *options],
            cwd=ROOT / "ansible", env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORKS": "10"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_PLAY_TIMEOUT_S,
        )  # fmt: skip
        text = f"{done.stdout}{done.stderr}"
        say(f"{playbook} {' '.join(options)}: {time.monotonic() - started:.0f} s")
        print(text)
        assert "PRIVATE KEY" not in text, "a key is shown"
        if done.returncode != expect:
            for name, machine in self.machines.items():
                print(name, machine.ssh("journalctl --no-pager --lines 40 --unit 'penstock-*'", check=False).stdout)
        assert done.returncode == expect, f"{playbook} ended with {done.returncode}; see above"
        return recap(done.stdout)

    def ssh(self, name: str, command: str, *, check: bool = True) -> str:
        """What a shell command of root's says on a machine."""
        return self.machines[name].ssh(command, check=check, timeout_s=900).stdout

    def everywhere(self, command: str, *, check: bool = True) -> dict[str, str]:
        """What it says on each machine; they are asked at the same time, as each answers slowly."""
        with ThreadPoolExecutor(len(self.machines)) as threads:
            asked = {name: threads.submit(self.ssh, name, command, check=check) for name in self.machines}
        return {name: answer.result() for name, answer in asked.items()}

    def penstock(self, name: str, command: str, *, user: str = "root") -> str:
        """The same of a command of ours."""
        return self.ssh(name, f"cd / && runuser -u {user} -- {_PENSTOCK} {command}")

    def page(self, name: str, path: str, token: str = "") -> str:
        """What the master's page says to somebody on a machine; its status alone where it refuses."""
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
        """The nodes as the master has them, asked from another machine with the token of those who only look."""
        token = self.ssh(MASTER, "cat /etc/penstock/master-http-read.token").strip()
        nodes: dict[str, dict[str, object]] = json.loads(self.page(NAMES[-1], "/status", token))["nodes"]
        return nodes

    def survey(self) -> dict[str, list[str]]:
        """What there is on each machine that an installation may add to: one line each."""
        said = self.everywhere(f"/usr/bin/python3 - <<'END'\n{_SURVEY.read_text()}\nEND")
        return {name: lines.splitlines() for name, lines in said.items()}

    def _inventory(self) -> Path:
        hosts = {
            name: {
                "ansible_host": "vm",
                "ansible_become": False,  # ssh opens root's account; there is no sudo in the machines
                "ansible_python_interpreter": f"{_WARM}/python",
                "ansible_ssh_args": "",
                "ansible_ssh_common_args": f"-F {machine.ssh_config}",
            }
            for name, machine in self.machines.items()
        }
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
    network = _free_port()
    machines = {name: Machine(forward=(), lan=(network, number)) for number, name in enumerate(NAMES, 1)}
    with ExitStack() as stack, ThreadPoolExecutor(len(machines)) as threads:
        hosts = "".join(f"10.74.20.{number} {name}\n" for number, name in enumerate(NAMES, 1))
        library = _ansible_library(directory)

        def prepare(number: int, name: str) -> None:
            machine = machines[name]
            stack.enter_context(machine)
            machine.ssh(
                f"hostname {name} && printf '{hosts}' >>/etc/hosts && "
                f"ip address add 10.74.20.{number}/24 dev eth1 && ip link set eth1 up"
            )
            with library.open("rb") as archive:
                machine.ssh(f"mkdir {_WARM} && tar -C {_WARM} -xf -", stdin=archive)
            machine.ssh(f"/usr/bin/python3 {_WARM}/warm.py </dev/null >/dev/null 2>&1")

        for prepared in [threads.submit(prepare, number, name) for number, name in enumerate(NAMES, 1)]:
            prepared.result()
        yield Cluster(machines, directory)


def _ansible_library(directory: Path) -> Path:
    """An archive of what warm.py needs: Ansible's modules as they are here, and the program that Ansible calls."""
    program = directory / "python"
    subprocess.run(["gcc", "-O1", "-static", "-o", str(program), str(_HERE / "warm.c")], check=True)
    (directory / "empty").touch()
    archive = directory / "warm.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(program, "python")
        tar.add(_HERE / "warm.py", "warm.py")
        tar.add(directory / "empty", "ansible/__init__.py")
        for name in ("release.py", "module_utils", "modules"):
            tar.add(str(distribution("ansible-core").locate_file(f"ansible/{name}")), f"ansible/{name}", filter=_source)
    return archive


def _source(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return member if member.isdir() or member.name.endswith(".py") else None


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


def recap(said: str) -> dict[str, dict[str, int]]:
    """What ansible-playbook counts at its end, by host."""
    lines = re.findall(r"^(\S+)\s+: (ok=.*)$", said, re.MULTILINE)
    return {host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)} for host, counts in lines}


def _free_port() -> int:
    """Which no other network of machines on this host uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
