"""The built wheel with its extras and nothing else: each documented command runs, or names the package to install."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.installed_wheel import NODE, Environment, Environments
from tests.integration.conftest import end_launcher

pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds the wheel")

JOB = """
name = "words"
memory = "64M"
[[task]]
name = "write"
kind = "disk"
command = "seq 1000 > numbers"
[[task]]
name = "sort"
command = "sort -r numbers > sorted"
after = ["write"]
memory = "32M"
"""
REQUESTS = {
    "capacity": [{"since": 0, "bundle": "<40core,80GB>"}],
    "bundles": {"b": "<2GB,1core>"},
    "step": "1min", "begins": "2026-11-21T00:00:00Z", "horizon": "1d",
    "requests": [{"name": "nightly", "owner": "eve", "rdl": "window(atom(b,1,10,10min,24h),0,6h)"}],
}  # fmt: skip
DASK = ("dask", "joblib")


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Environments:
    return Environments(tmp_path_factory.mktemp("environments"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the input of the commands."""
    directory = tmp_path_factory.mktemp("work")
    directory.chmod(0o777)
    (directory / "job.toml").write_text(JOB)
    (directory / "java/bin").mkdir(parents=True)
    (directory / "java/bin/java").symlink_to("/bin/true")
    (directory / "requests.json").write_text(json.dumps(REQUESTS))
    (directory / "profile.json").write_text('{"slot_s": 10, "cpu_cores": [0.5, 1]}')
    return directory


# ---------------------------------------------------------------- the contents of each extra


@pytest.mark.parametrize(
    ("extras", "argv"),
    [
        ((), ["completion", "bash"]),
        ((), ["simulate", "--list"]),
        ((), ["spark-config", "--java-home", "java", "--directory", "spark-java"]),
        (("agent",), ["config", "show", "agent"]),
        (("agent",), ["check", "--need", "users"]),
        (("master",), ["config", "show", "master", "--set", "listen=/run/penstock/master.sock"]),
        (("master",), ["plan", "requests.json", "--planner", "gree_l"]),
        (("master",), ["simulate", "ubis/fig3"]),
        (("master",), ["plan", "requests.json", "--planner", "milp"]),
        (("milp",), ["plan", "requests.json", "--planner", "milp"]),
        (("simulate",), ["simulate", "ubis/fig3", "--plot", "picture.png"]),
        (("simulate",), ["plan", "requests.json", "--plot", "picture.png"]),
        (("ca",), ["ca", "init", "--directory", "ca"]),
        (DASK, ["dask-worker", "--help"]),
    ],
)
def test_an_extra_alone_has_all_that_its_commands_need(
    extras: tuple[str, ...], argv: list[str], environments: Environments, work: Path
) -> None:
    done = environments.having(*extras).run(*argv, cwd=work)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("planner", ["gree", "gree_l", "milp"])
def test_the_master_s_extra_alone_gives_a_large_atom_the_least(
    planner: str, environments: Environments, work: Path
) -> None:
    """In this room blocks of bundles have 30 bundle-steps, and bundles that come and go one by one 26."""
    room = [4, 3, 4, 4, 4, 4, 1, 3, 1, 4, 3, 1, 1]
    capacity = [{"since": step, "bundle": f"<{cores}core>"} for step, cores in enumerate(room)]
    asked = {"name": "large", "rdl": "window(atom(<1core>, 1, 4, 6, 26), 0, 13)"}
    requests = {"capacity": capacity, "step": "1min", "horizon": len(room), "requests": [asked]}
    (work / "large.json").write_text(json.dumps(requests))
    done = environments.having("master").run("plan", "large.json", "--planner", planner, "--json", cwd=work)
    assert done.returncode == 0, done.stderr
    (planned,) = json.loads(done.stdout)["requests"]
    assert sum((part["finish"] - part["start"]) * part["bundles"] for part in planned["promised"]) == 26


@pytest.mark.parametrize(
    ("extras", "argv", "remedy"),
    [
        ((), ["up"], "agent,master"),
        ((), ["check"], "agent"),
        ((), ["agent"], "agent"),
        ((), ["master"], "master"),
        ((), ["uninstall", "--dry-run"], "agent"),
        ((), ["config", "show", "agent"], "agent"),
        ((), ["config", "set", "t_alloc=0.9", "--persist"], "agent"),
        ((), ["simulate", "ubis/fig3"], "simulate"),
        ((), ["plan", "requests.json"], "master"),
        ((), ["place", "snapshot.json"], "master"),
        ((), ["ca", "init", "--directory", "ca"], "ca"),
        (("agent",), ["up"], "agent,master"),
        (("master",), ["up"], "agent,master"),
        (("master",), ["plan", "requests.json", "--plot", "picture.png"], "simulate"),
        (("master",), ["simulate", "ubis/fig3", "--plot", "picture.png"], "simulate"),
    ],
)
def test_a_command_without_its_extra_names_the_remedy_in_one_line(
    extras: tuple[str, ...], argv: list[str], remedy: str, environments: Environments, work: Path
) -> None:
    chosen = environments.having(*extras)
    done = chosen.run(*argv, cwd=work, environment={"PENSTOCK_RUNTIME_DIR": str(work / "none")})
    assert done.returncode in {1, 2}
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"penstock {argv[0]}: ")
    assert f"{chosen.python} -m pip install 'penstock[{remedy}]'" in done.stderr
    assert not list(work.glob("none/*")), "nothing is started in vain"


# ---------------------------------------------------------------- a host with an agent and a master


@dataclass
class Host:
    """A running ``penstock up`` from the extras of a node; its clients have the light client alone."""

    node: Environment
    client: Environment
    work: Path
    environment: dict[str, str]

    def asks(self, *argv: str, status: int = 0, by: Environment | None = None) -> str:
        done = (by or self.client).run(*argv, cwd=self.work, environment=self.environment)
        said = done.stdout + done.stderr
        assert done.returncode == status, f"{argv}: {said}"
        assert "Traceback" not in said
        return done.stdout.strip()


@pytest.fixture(scope="module")
def host(environments: Environments, tmp_path_factory: pytest.TempPathFactory, work: Path) -> Iterator[Host]:
    tmp_path = tmp_path_factory.mktemp("host")
    tmp_path.chmod(0o755)
    node, client = environments.having(*NODE), environments.having()
    environment = {
        "PENSTOCK_RUNTIME_DIR": str(tmp_path / "run"),
        "PENSTOCK_STATE_DIR": str(tmp_path / "state"),
        "PENSTOCK_UP_SCOPE": "none: the test's own processes",
    }
    short = ["--set", "executor_slot_s=0.2", "--set", "sample_interval_s=0.1", "--master-set", "executor_slot_s=0.2"]
    log = tmp_path / "log"
    with log.open("w") as errors:
        up = subprocess.Popen(
            [str(node.directory / "bin/penstock"), "up", "--port-file", str(tmp_path / "ports.json"), *short],
            env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    assert up.stdout is not None
    try:
        with up.stdout:
            assert any(line.startswith("ready") for line in up.stdout), log.read_text()
            ports = json.loads((tmp_path / "ports.json").read_text())
            environment["PENSTOCK_MASTER_HTTP"] = f"http://{ports['master_http']}"
            yield Host(node, client, work, environment)
    finally:
        up.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            up.wait(60)
        up.kill()
        end_launcher(tmp_path / "run")
    assert "Traceback" not in log.read_text()


def test_the_light_client_has_every_command_of_containers_and_jobs(host: Host) -> None:
    container = host.asks("run", "--detach", "--", "sleep", "600")
    host.asks("resize", container, "--memory", "64M")
    host.asks("follow", container, "profile.json")
    host.asks("logs", container)
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        adopted = host.asks("adopt", str(sleeping.pid))
        host.asks("kill", container, adopted)
    host.asks("run", "--opportunistic", "--cpu", "0.5", "--", "true")
    for ordering in ("fifo", "fair", "drf", "las", "srjf", "las_mq", "ejf"):
        host.asks("config", "set", f"ordering={ordering}", "--daemon", "master")
        job = host.asks("submit", "--quiet", "--detach", "job.toml").split()[-1]
    host.asks("submit", "--opportunistic", "only", "job.toml")
    host.asks("explain", job)
    host.asks("reserve", "window(atom(<64MB,1core>, 1, 1, 10min, 10min), +1h, +3h)", "--name", "nightly")
    for looking in (["jobs"], ["reservations"], ["status"], ["status", "--cluster"], ["top"], ["completion", "fish"]):
        host.asks(*looking)


def test_a_node_and_a_master_work_as_their_pages_say(host: Host) -> None:
    for page in ("/", "/metrics", "/openapi.json", "/status", "/profiles"):
        with urllib.request.urlopen(host.environment["PENSTOCK_MASTER_HTTP"] + page, timeout=30) as answer:
            assert answer.status == 200
    with urllib.request.urlopen(host.environment["PENSTOCK_MASTER_HTTP"] + "/snapshot", timeout=30) as answer:
        (host.work / "snapshot.json").write_bytes(answer.read())
    host.asks("place", "snapshot.json", by=host.node)
    missing = json.loads(host.asks("check", "--need", "users,prediction", "--json", status=1, by=host.node))
    assert [name for name, fact in missing.items() if not fact["ok"]] == ["prediction"]
    host.asks("uninstall", "--dry-run", status=1, by=host.node)  # an agent runs
    for command in ("drain", "undrain"):
        host.asks(command, json.loads(host.asks("status", "--json"))["node"])


def test_settings_never_seen_before_are_forecast_without_scikit_learn(host: Host) -> None:
    for size in ("1M", "2M", "3M", "4M"):
        host.asks(
            "submit", "--quiet", "--executors", "1", "--application", "sort", "--cpu", "0.2", "--memory", "64M",
            "--input-bytes", size, "--", "sleep", "0.5",
        )  # fmt: skip
    while not (errors := json.loads(host.asks("profile", "list", "--json"))[0]["error"]):
        time.sleep(0.2)  # it is learnt in the background
    assert set(errors) == {"neighbours"}
    models = json.loads(host.asks("status", "--cluster", "--json"))["models"]
    assert models["neighbours"] == ""
    assert "scikit-learn is not installed" in models["svr"]
    for what in ("show", "plot", "compare"):
        host.asks("profile", what, "sort")
    host.asks("profile", "plot", "sort", "--svg", "sort.svg")


_DASK = """
from distributed import Client, LocalCluster
with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
    with Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result() == 3
"""
_JOBLIB = """
import joblib, penstock.engines.joblib
penstock.engines.joblib.register()
with joblib.parallel_config("penstock"):
    assert joblib.Parallel()(joblib.delayed(abs)(-number) for number in range(3)) == [0, 1, 2]
"""


@pytest.mark.parametrize("program", [_DASK, _JOBLIB], ids=["dask", "joblib"])
def test_frameworks_go_through_the_gates_with_their_extras_alone(
    program: str, host: Host, environments: Environments
) -> None:
    done = subprocess.run(
        [str(environments.having(*DASK).python), "-I", "-c", program],
        env={**os.environ, **host.environment, "DASK_DISTRIBUTED__WORKER__PRELOAD": "penstock.engines.dask.preload"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
