"""`penstock up` for real: master and agent as its children, and the other commands through them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import warm_commands
from tests.integration.conftest import end_launcher

#: The user's command: this one `penstock up` is a process of its own. The others are forked, which is cheaper.
_PROCESS = (sys.executable, "-I", "-m", "penstock.cli.main")
COMMAND = (warm_commands.penstock(),)


@dataclass
class Up:
    """A running `penstock up` and its output."""

    process: subprocess.Popen[str]
    directory: Path
    environment: dict[str, str]
    announced: list[str]

    def command(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *argv],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def children(self) -> dict[str, int]:
        """The daemons' process ids by name."""
        found = {}
        own = f"PENSTOCK_RUNTIME_DIR={self.environment['PENSTOCK_RUNTIME_DIR']}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                name = (entry / "cmdline").read_bytes().partition(b"\0-m\0")[2].partition(b"\0")[0]
                if name in (b"agent", b"master") and own in (entry / "environ").read_bytes().split(b"\0"):
                    found[name.decode()] = int(entry.name)
        return found


@contextlib.contextmanager
def started(directory: Path, *argv: str, by: tuple[str, ...] = COMMAND, **environment: str) -> Iterator[Up]:
    """In its own environment, or with the directories of another one's."""
    directory.chmod(0o755)
    environment = {
        **os.environ,
        "PENSTOCK_RUNTIME_DIR": str(directory / "run"),
        "PENSTOCK_STATE_DIR": str(directory / "state"),
        "PENSTOCK_UP_SCOPE": "none: the test's own processes",
        **environment,
    }
    environment.pop("PENSTOCK_SOCKET", None)
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([*by, "up", *argv], env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("ready"):
                break
        yield Up(process, directory, environment, lines)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()
            end_launcher(directory / "run")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One for all that harm it in nothing; SIGTERM ends it cleanly."""
    directory = tmp_path_factory.mktemp("up")
    with started(directory, "--port-file", str(directory / "ports.json"), by=_PROCESS) as running:
        assert running.announced[-1].startswith("ready"), (directory / "log").read_text()
        yield running
        ends_both_cleanly(running, signal.SIGTERM)


def test_it_prints_where_everything_is(up: Up) -> None:
    addresses = json.loads((up.directory / "ports.json").read_text())
    assert addresses["socket"] == str(up.directory / "run" / "agent.sock")
    assert addresses["socket"] in up.announced[0]
    for key in ("agent_http", "master_http"):
        with urllib.request.urlopen(f"http://{addresses[key]}/status", timeout=10) as answer:
            assert "version" in json.load(answer)
    status = json.loads(up.command("status", "--json").stdout)
    assert status["master"] == {"address": addresses["master"], "linked": True}


def test_on_a_host_with_cgroup_v1_one_line_names_all_that_is_not_enforced(up: Up) -> None:
    log = (up.directory / "log").read_text(encoding="utf-8").splitlines()
    assert len([line for line in log if "bound to cgroup v1" in line]) == any_bound_to_cgroup_v1()


def any_bound_to_cgroup_v1() -> bool:
    """Return whether a controller that the agent uses belongs to a hierarchy of cgroup v1."""
    table = Path("/proc/cgroups")
    rows = [line.split() for line in table.read_text().splitlines()] if table.exists() else []
    return any(row[0] in {"cpu", "cpuset", "blkio", "memory", "pids"} and row[1] != "0" for row in rows)


def test_a_second_one_is_refused(up: Up) -> None:
    second = up.command("up")
    assert second.returncode == 1
    assert "an agent runs already at" in second.stderr
    assert "--set runtime_dir=DIR --set state_dir=DIR2" in second.stderr


def test_a_second_one_in_directories_of_its_own_keeps_a_store_of_its_own(up: Up, tmp_path: Path) -> None:
    """The environment names the first one's state directory; the remedy's options name the second one's."""
    options = ("--set", f'runtime_dir="{tmp_path / "run2"}"', "--set", f"state_dir='{tmp_path / 'state2'}'")
    ports = tmp_path / "ports2.json"
    with started(tmp_path, *options, "--port-file", str(ports), **up.environment) as second:
        try:
            assert second.announced[-1].startswith("ready"), (tmp_path / "log").read_text()
            assert (tmp_path / "state2/master.db").exists() and (up.directory / "state/master.db").exists()
            assert not (tmp_path / "state").exists()
            assert json.loads(ports.read_text())["socket"] == str(tmp_path / "run2" / "agent.sock")
            second.process.terminate()
            second.process.wait(60)
            assert not ports.exists()
        finally:
            end_launcher(tmp_path / "run2")


def test_http_ports_that_others_have_keep_it_from_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        taken = [f"127.0.0.1:{each.getsockname()[1]}" for each in (first, second)]
        with started(tmp_path, "--set", f"http={taken[0]}", "--master-set", f"http={taken[1]}") as up:
            assert up.announced[-1].startswith("ready"), (tmp_path / "log").read_text()
            for name, http in zip(("agent", "master"), taken, strict=True):
                line = (
                    f"{name} status".ljust(14)
                    + f" none: another process has {http}; the {name} takes it as soon as it is free"
                )
                assert line in up.announced
            assert up.command("run", "true").returncode == 0
            assert f"degraded: http: another process has {taken[0]}" in up.command("status").stdout
            assert f"degraded: http: another process has {taken[1]}" in up.command("status", "--cluster").stdout


def test_commands_run_through_it(up: Up, tmp_path: Path) -> None:
    done = up.command(
        "run", "--cwd", str(tmp_path), "--", "sh", "-c", "pwd; cat; echo bad >&2; exit 7", stdin="typed\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, f"{tmp_path}\ntyped\n", "bad\n")
    done = up.command("run", "sh", "-c", "kill -KILL $$")
    assert done.returncode == 137


JOB = """
name = "real"
[[task]]
name = "write"
command = "seq 1 1000 > numbers"
kind = "disk"
[[task]]
name = "sum"
command = "awk '{ s += $1 } END { print s }' numbers > sum"
after = ["write"]
memory = "10M"
[[task]]
name = "bad"
command = "echo no luck; exit 4"
after = ["write"]
[[task]]
name = "never"
command = "touch never"
after = ["bad"]
"""


def test_a_job_runs_through_it(up: Up, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    done = up.command("submit", str(tmp_path / "job.toml"), "--json")
    assert done.returncode == 1, done.stderr
    tasks = {task["task"]: task for task in json.loads(done.stdout)["tasks"]}
    assert {name: task["state"] for name, task in tasks.items()} == {
        "write": "done",
        "sum": "done",
        "bad": "failed",
        "never": "skipped",
    }
    assert (tmp_path / "sum").read_text() == "500500\n"
    assert not (tmp_path / "never").exists()
    assert (tasks["bad"]["exit_status"], tasks["bad"]["output"]) == (4, "no luck")
    assert json.loads(up.command("status", "--json").stdout)["jobs"] == []


def test_a_cancelled_job_leaves_nothing_running(up: Up, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "job.toml").write_text(
        'name = "long"\n[[task]]\nname = "one"\ncommand = "echo started > fifo; exec sleep 600"\n'
        '[[task]]\nname = "two"\ncommand = "true"\nafter = ["one"]\n'
    )
    process = subprocess.Popen(
        [*COMMAND, "submit", str(tmp_path / "job.toml"), "--json"],
        env=up.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert fifo.read_text() == "started\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert {task["task"]: task["state"] for task in json.loads(out)["tasks"]} == {"one": "cancelled", "two": "skipped"}
    status: dict[str, Any] = json.loads(up.command("status", "--json").stdout)
    assert status["jobs"] == []
    assert {container["state"] for container in status["containers"]} == {"ended"}


def ends_both_cleanly(up: Up, number: int) -> None:
    children = up.children()
    assert sorted(children) == ["agent", "master"]
    up.process.send_signal(number)
    assert up.process.wait(60) == 0
    said = (up.directory / "log").read_text().splitlines()[-3:]
    events = ("agent stops", "agent disconnected", "master stops")  # as the agent ended before the master
    assert [event in line and "info" in line for event, line in zip(events, said, strict=True)] == [True] * 3, said
    assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())
    assert not (up.directory / "run" / "agent.sock").exists()


def test_ctrl_c_ends_both_cleanly(tmp_path: Path) -> None:
    with started(tmp_path) as up:
        ends_both_cleanly(up, signal.SIGINT)


@pytest.mark.parametrize("victim", ["agent", "master"])
def test_when_one_dies_the_other_is_stopped(tmp_path: Path, victim: str) -> None:
    with started(tmp_path) as up:
        children = up.children()
        os.kill(children[victim], signal.SIGKILL)
        assert up.process.wait(60) == 1
    assert f"penstock up: the {victim} ended by itself (exit status -9)" in (tmp_path / "log").read_text()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())


def test_a_daemon_that_cannot_start_is_reported(tmp_path: Path) -> None:
    with started(tmp_path, "--master-set", "nodes=1") as up:
        assert up.process.wait(60) == 1
    log = (tmp_path / "log").read_text()
    assert "unknown key 'nodes'" in log
    assert "the master did not start (exit status 2)" in log
