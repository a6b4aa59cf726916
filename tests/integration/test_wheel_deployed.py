"""The built wheel as the playbooks install it: a master with the extras of their default, a node, TLS between them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from master.store import Database, Depository
from tests.installed_wheel import NODE, ON_MASTERS, Environment, Environments
from tests.integration.conftest import Daemon, end_launcher, start
from tests.unit.master.prediction.made_runs import made

pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds the wheel")

SLOT_S = 0.2
JOB = 'name = "one"\n[[task]]\nname = "task"\ncommand = "sleep 600"\nmemory = "32M"\n'


@dataclass
class Deployed:
    """A master and an agent, each from its own installation, and the requests of a client of the light wheel."""

    client: Environment
    master: Daemon
    agent: Daemon
    job: Path
    environment: dict[str, str]

    def asks(self, *argv: str, status: int = 0) -> str:
        done = self.client.run(*argv, environment=self.environment)
        assert done.returncode == status, f"{argv}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr
        return (done.stderr if status else done.stdout).strip()

    def placed(self, job: str) -> dict[str, Any]:
        """The explanation of a job of one task, once it is placed."""
        while True:
            said: dict[str, Any] = json.loads(self.asks("explain", job, "--json"))
            if said["placed"]:
                return said
            time.sleep(0.1)


def certified(ca: Environment, directory: Path, name: str, *options: str) -> str:
    """A certificate of ``penstock ca``, as lines of a daemon's file."""
    authority = directory / "ca"
    if not authority.exists():
        assert ca.run("ca", "init", "--directory", str(authority)).returncode == 0
    done = ca.run("ca", "issue", name, *options, "--directory", str(authority))
    assert done.returncode == 0, done.stderr
    files = {"tls_ca": "ca.pem", "tls_certificate": f"{name}.pem", "tls_key": f"{name}.key"}
    return "".join(f'{key} = "{next(authority.rglob(file))}"\n' for key, file in files.items())


def with_runs(store: Path) -> None:
    """Six runs of an application, each with settings of its own, from which its use follows."""
    database = Database(str(store))
    runs = Depository(database)
    for number, size_gb in enumerate((1, 2, 4, 8, 16, 32)):
        runs.add("root/sort", made(size_gb, 2), ended_at=1e9 + number, slot_s=SLOT_S)
    database.close()


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    directory = tmp_path_factory.mktemp("deployed")
    directory.chmod(0o755)
    environments = Environments(tmp_path_factory.mktemp("environments"))
    client, ca = environments.having(), environments.having(*NODE, "ca")
    with_runs(directory / "master.db")
    (directory / "job.toml").write_text(JOB)
    (directory / "master.toml").write_text(
        f'listen = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\nstore = "{directory}/master.db"\n'
        f'reservation_planner = "gree_l"\nexecutor_slot_s = {SLOT_S}\n' + certified(ca, directory, "head", "--master")
    )
    files = ["--config", str(directory / "master.toml")]
    environment = {"PENSTOCK_MASTER_LISTEN": "127.0.0.1:0"}
    program = environments.having(*ON_MASTERS).directory / "bin/penstock"
    master = start("master", directory, *files, environment=environment, program=program)
    try:
        (directory / "agent.toml").write_text(
            f'node = "node1"\nmaster = "{master.addresses["listen"]}"\nmaster_name = "head"\nhttp = "127.0.0.1:0"\n'
            f'runtime_dir = "{directory}/run"\nstate_dir = "{directory}/state"\ncores = 4\nmemory_bytes = "16GB"\n'
            f"executor_slot_s = {SLOT_S}\nsample_interval_s = 0.1\n" + certified(ca, directory, "node1")
        )
        program = environments.having(*NODE).directory / "bin/penstock"
        agent = start("agent", directory, "--config", str(directory / "agent.toml"), program=program)
        asked = {
            "PENSTOCK_RUNTIME_DIR": str(directory / "run"),
            "PENSTOCK_MASTER_HTTP": f"http://{master.addresses['http']}",
        }
        try:
            yield Deployed(client, master, agent, directory / "job.toml", asked)
        finally:
            agent.stop()
            end_launcher(directory / "run")
    finally:
        master.stop()
    assert "Traceback" not in master.log.read_text() + agent.log.read_text()


def test_certificates_of_the_ca_s_extra_link_the_node_to_the_master(deployed: Deployed) -> None:
    for daemon in (deployed.master, deployed.agent):
        assert daemon.status()["certificates"]
    deployed.asks("cancel", deployed.asks("submit", "--quiet", "--detach", str(deployed.job)).split()[-1])
    assert deployed.agent.status()["master"]["linked"] is True
    assert list(deployed.master.status()["nodes"]) == ["node1"]


@pytest.mark.parametrize("policy", ["tetris", "tetris2", "capacity", "ursa"])
def test_a_policy_of_placement_is_set_live_and_places(policy: str, deployed: Deployed) -> None:
    deployed.asks("config", "set", f"placement={policy}", "--daemon", "master")
    job = deployed.asks("submit", "--quiet", "--detach", str(deployed.job)).split()[-1]
    assert deployed.placed(job)["placement"] == policy
    deployed.asks("cancel", job)


def test_the_planner_of_the_master_s_file_accepts_a_reservation(deployed: Deployed) -> None:
    said = deployed.asks("config", "set", "reservation_planner=gree", "--daemon", "master", status=2)
    assert "reservation_planner: cannot change while the daemon runs; write it into" in said
    deployed.asks("reserve", "window(atom(<64MB,1core>, 1, 4, 10min, 20min), +1h, +3h)", "--name", "nightly")
    assert "nightly" in deployed.asks("reservations")


def test_settings_never_seen_before_are_forecast_by_svr(deployed: Deployed) -> None:
    assert json.loads(deployed.asks("status", "--cluster", "--json"))["models"] == {"svr": "", "neighbours": ""}
    submit = (
        "submit",
        "--quiet",
        "--detach",
        "--executors",
        "1",
        "--application",
        "sort",
        "--cpu",
        "2",
        "--memory",
        "8GB",
    )
    first = deployed.asks(*submit, "--input-bytes", "5GB", "--", "sleep", "600").split()[-1]
    while not (errors := json.loads(deployed.asks("profile", "list", "--json"))[0]["error"]):
        time.sleep(0.2)  # it is learnt in the background, from the first question on
    assert errors["svr"] < min(0.3, errors["neighbours"])
    deployed.asks("cancel", first)
    job = deployed.asks(*submit, "--input-bytes", "6GB", "--", "sleep", "600").split()[-1]
    assert deployed.placed(job)["last_placed"][0]["why"].endswith("; svr")
    deployed.asks("cancel", job)
