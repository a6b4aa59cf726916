"""The roles on a node that has work: whether it is drained, and given work again, and the files left there.

They are played unchanged, in a mount namespace of its own, where `penstock` and `systemctl` are stand-ins that note
their calls. Real machines are in tests/cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import ansible_mitogen
import pytest

ANSIBLE = Path(__file__).resolve().parents[2] / "ansible"
TIMEOUT_S = 240
OLD, NEW = "old.example.org:7420", "new.example.org:7420"
BY_OPERATOR = {"by": "alice", "since": 1764396000.5, "state": "drained"}
SINCE = 1764396920.125

#: ``status`` is the agent's status document, ``reachable`` the master that answers it after a start.
STAND_IN = f"""#!{sys.executable} -IS
import json, pathlib, sys, tomllib
name, words, here = pathlib.Path(sys.argv[0]).name, sys.argv[1:], pathlib.Path(sys.argv[0]).parents[1]
host = json.loads((here / "host").read_text())
status = host["status"]
with (here / "calls").open("a") as calls:
    print(name, *words, file=calls)
match [name, *words]:
    case ["systemctl", "is-active", *_]:
        print("active")
    case ["systemctl", "is-enabled", *_]:
        print("enabled")
    case ["systemctl", "show", unit]:
        print("LoadState=loaded", "ActiveState=" + ("inactive" if unit in host["stopped"] else "active"), sep="\\n")
    case ["systemctl", "stop", unit]:
        host["stopped"] = [unit]
    case ["systemctl", "start", unit]:
        host["stopped"] = []
        master = tomllib.loads(pathlib.Path("/etc/penstock/agent.toml").read_text())["master"]
        status["master"] = {{"address": master, "linked": master == host["reachable"]}}
    case ["penstock", "status", *_]:
        print(json.dumps(status))
    case ["penstock", "drain" | "undrain", *_] if not status["master"]["linked"]:
        sys.exit("the master is away")
    case ["penstock", "drain", *_]:
        status["drain"] = status["drain"] or {{"by": "root", "since": {SINCE}, "state": "drained"}}
        print(json.dumps({{"nodes": [{{"node": "here", "state": "drained", "draining": status["drain"]}}]}}))
    case ["penstock", "undrain"]:
        status["drain"] = None
(here / "host").write_text(json.dumps(host))
"""

#: /etc and /opt with a layer above them, in which /opt/penstock is the test's. Then it becomes its arguments.
ROOM = """
mount -t tmpfs none /mnt || { echo cannot mount >&2; exit 1; }
for each in etc opt; do
    mkdir -p /mnt/$each/upper /mnt/$each/work
    mount -t overlay -o lowerdir=/$each,upperdir=/mnt/$each/upper,workdir=/mnt/$each/work none /$each ||
        { echo cannot mount >&2; exit 1; }
done
mkdir -p /opt/penstock /etc/penstock /etc/systemd/system
mount --bind "$HOST/opt" /opt/penstock
mount --bind "$HOST/etc" /etc/penstock
mount --bind "$HOST/units" /etc/systemd/system
exec "$@"
"""


#: Map the given files, and run the command behind "--".
USER = """
import mmap, subprocess, sys
at = sys.argv.index("--")
maps = []
for path in sys.argv[1:at]:
    with open(path, "rb") as file:
        maps.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
sys.exit(subprocess.run(sys.argv[at + 1 :]).returncode)
"""


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Print nothing."""


class Host:
    """A host with an agent that runs."""

    def __init__(self, directory: Path, http: str) -> None:
        self.directory, self._http = directory, http
        for name in ("opt", "etc", "units", "venv/bin"):
            (directory / name).mkdir(parents=True)
        for name in ("penstock", "systemctl"):
            program = directory / "venv/bin" / name
            program.write_text(STAND_IN)
            program.chmod(0o755)
        (directory / "opt/agent").symlink_to(directory / "venv")
        self.mark = directory / "opt/agent.drained"
        self.said = ""

    def set_answers(
        self, *, master: str, linked: bool, drain: dict[str, Any] | None = None, reachable: str = NEW
    ) -> None:
        """Set the agent's answer about itself, and let the master ``reachable`` answer the next one."""
        status = {"master": {"address": master, "linked": linked}, "drain": drain}
        host = {"status": status, "stopped": [], "reachable": reachable}
        (self.directory / "venv/host").write_text(json.dumps(host))

    def drain(self) -> Any:
        return json.loads((self.directory / "venv/host").read_text())["status"]["drain"]

    def play(self, master: str) -> list[str]:
        """Play the role; return the calls that change something. It must fail where the agent was not started again."""
        calls = self.directory / "venv/calls"
        calls.unlink(missing_ok=True)
        variables = {
            "penstock_agent_master": master,
            "penstock_agent_http": self._http,
            "penstock_agent_config": {"tls_certificate": "/none"},
            "penstock_agent_link_retries": 1,
            "penstock_venv_path": str(self.directory / "venv"),
            "ansible_python_interpreter": sys.executable,
        }
        done = self._play({"roles": ["penstock_agent"]}, variables)
        changing = {"drain", "undrain", "stop", "start"}
        acts = [line for line in calls.read_text().splitlines() if line.split()[1] in changing]
        assert (done == 0) == ("systemctl start penstock-agent.service" in acts)
        return acts

    def clear_calls(self, *used: str) -> None:
        """Remove former environments, while a process uses these files."""
        forget = {"name": "penstock_venv", "tasks_from": "forget"}
        variables = {"ansible_python_interpreter": sys.executable}
        user = (sys.executable, "-c", USER, *used, "--")
        assert self._play({"tasks": [{"include_role": forget}]}, variables, *user) == 0

    def _play(self, what: dict[str, Any], variables: dict[str, Any], *through: str) -> int:
        """Play it, as a child of a program; return the exit status."""
        playbook = self.directory / "play.yml"
        playbook.write_text(json.dumps([{"hosts": "all", "connection": "local", "gather_facts": False, **what}]))
        command = [
            "unshare", "--mount", "--propagation", "private", "sh", "-c", ROOM, "sh", *through,
            str(Path(sys.executable).with_name("ansible-playbook")),
            "-i", "node07,", "-e", json.dumps(variables), str(playbook),
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=ANSIBLE, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=TIMEOUT_S,
            env={
                **os.environ, "HOST": str(self.directory), "ANSIBLE_NOCOLOR": "1",
                "PATH": f"{self.directory}/venv/bin:{os.environ['PATH']}", "ANSIBLE_STRATEGY": "mitogen_linear",
                "ANSIBLE_STRATEGY_PLUGINS": str(Path(ansible_mitogen.__file__).parent / "plugins/strategy"),
            },
        )  # fmt: skip
        print(done.stdout, done.stderr)
        if "cannot mount" in done.stderr:
            pytest.skip(f"elsewhere: no mounts of our own here: {done.stderr.strip()}")
        self.said = " ".join(done.stdout.split())
        return done.returncode


BEGIN, WAIT = "penstock drain --no-wait --json", "penstock drain --timeout 30min"
RESTART = ["systemctl stop penstock-agent.service", "systemctl start penstock-agent.service"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare for a mount namespace")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Host(tmp_path, f"127.0.0.1:{server.server_port}")
        server.shutdown()


def test_another_masters_address_is_brought_by_way_of_the_old_one(host: Host) -> None:
    host.set_answers(master=OLD, linked=True)
    assert host.play(NEW) == [BEGIN, WAIT, *RESTART, "penstock undrain"]
    assert host.drain() is None
    assert not host.mark.exists()
    # Nothing of the configuration is to be changed now: a link that is away is no reason to go on.
    host.set_answers(master=NEW, linked=False)
    (host.directory / "units/penstock-agent.service").unlink()
    assert host.play(NEW) == []
    assert f"has no link to its master {NEW}, so the node cannot be drained; nothing was changed there" in host.said


def test_where_the_old_master_is_away_the_node_is_not_drained_and_that_is_reported(host: Host) -> None:
    host.set_answers(master=OLD, linked=False)
    assert host.play(NEW) == RESTART
    assert f"node07 is not drained, as its agent has no link to its master {OLD}" in host.said


def test_a_first_master_is_added(host: Host) -> None:
    host.set_answers(master="", linked=False)
    assert host.play(NEW) == RESTART
    assert "node07 is not drained" not in host.said, "there was nothing to drain"


def test_a_node_that_an_operator_drained_after_an_interrupted_run_stays_drained(host: Host) -> None:
    host.mark.write_text(str(SINCE))
    host.set_answers(master=OLD, linked=True, drain=BY_OPERATOR)
    assert host.play(NEW) == [WAIT, *RESTART]
    assert host.drain() == BY_OPERATOR
    assert not host.mark.exists()
    assert "node07 stays drained, as alice has drained it" in host.said


def test_a_run_that_was_interrupted_while_it_drained_is_finished(host: Host) -> None:
    host.mark.write_text(str(SINCE))
    host.set_answers(master=OLD, linked=True, drain={"by": "root", "since": SINCE, "state": "draining"})
    assert host.play(NEW) == [WAIT, *RESTART, "penstock undrain"]
    assert not host.mark.exists()


def test_an_environment_that_a_process_still_uses_is_left(host: Host) -> None:
    venvs = host.directory / "opt/venvs"
    for name in ("0a", "0b", "0c"):
        (venvs / name / "lib").mkdir(parents=True)
        (venvs / name / "lib/core.so").write_text("code")
    (host.directory / "opt/venv").symlink_to("/opt/penstock/venvs/0c")
    host.clear_calls("/opt/penstock/venvs/0b/lib/core.so")
    assert sorted(path.name for path in venvs.iterdir()) == ["0b", "0c"]
    host.clear_calls()
    assert [path.name for path in venvs.iterdir()] == ["0c"]
