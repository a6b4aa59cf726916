"""Our JAVA_HOME with a real master and a real agent, and a program in Java's place that needs no Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.spark import java_home
from penstock.engines.spark.executor_command import BACKEND
from tests.integration.conftest import MasterProcess, has_ended, until
from tests.spark_pages import APPLICATION, spark_pages, stage

Start = Callable[..., Any]
WAIT_S = 100
#: Print its properties, and end by a line from standard input, or by a signal.
PROGRAM = """
import os, signal, sys
def terminated(*_):
    os.write(1, b"terminated\\n")
    os._exit(7)
signal.signal(signal.SIGTERM, terminated)
signal.signal(signal.SIGHUP, terminated)
print("started", os.getpid(), os.getcwd(), os.environ["JAVA_HOME"], sys.argv[-1], flush=True)
print("to standard error", file=sys.stderr, flush=True)
sys.exit(int(sys.stdin.readline()))
"""


class Executor:
    """The process that Spark's Worker would have started."""

    def __init__(self, home: Path, cwd: Path, environment: dict[str, str], *, driver_url: str = "") -> None:
        cwd.mkdir(exist_ok=True)
        argv = ["-Xmx100M", BACKEND, "--driver-url", driver_url]
        argv += ["--executor-id", "0", "--cores", "1", "--app-id", APPLICATION]
        self.process = subprocess.Popen(
            [home / "bin/java", *argv], cwd=cwd, env={**os.environ, **environment}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def started(self) -> list[str]:
        """Return its first output: its pid, directory, JAVA_HOME, last argument."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline().split()
        assert said[:1] == ["started"], self.process.communicate()
        return said[1:]

    def end(self, status: int | None = None) -> tuple[int, str, str]:
        """Return its status, once it has ended (with ``status``, by that command), and its remaining output."""
        if status is None:
            self.process.wait(WAIT_S)  # its standard input stays open
        out, err = self.process.communicate(None if status is None else f"{status}\n", timeout=WAIT_S)
        return self.process.returncode, out, err


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    """Ours, and the one that is the real one here."""
    real = tmp_path / "java"
    (real / "bin").mkdir(parents=True)
    (real / "java.py").write_text(PROGRAM)
    (real / "bin/java").write_text(f'#!/bin/sh\nexec {sys.executable} -IS {real}/java.py "$@"\n')
    (real / "bin/java").chmod(0o755)
    java_home.make(tmp_path / "ours", real)
    return tmp_path / "ours", real


@pytest.fixture
def start(homes: tuple[Path, Path], tmp_path: Path) -> Iterator[Callable[..., Executor]]:
    made: list[Executor] = []

    def begin(socket: Path, *, driver_url: str = "", **environment: str) -> Executor:
        more = {"PENSTOCK_SOCKET": str(socket), "PENSTOCK_APPLICATION": "sort"} | environment
        made.append(Executor(homes[0], tmp_path / "app work", more, driver_url=driver_url))
        return made[-1]

    yield begin
    for each in made:
        each.process.kill()
        each.process.communicate()


def test_an_executor_lives_in_a_container(
    start_agent: Start, master: MasterProcess, start: Callable[..., Executor], homes: tuple[Path, Path], tmp_path: Path
) -> None:
    agent = start_agent(node="alpha", master=master.listen)
    with spark_pages() as pages:
        pages.stages = [stage(0, 4, 4, "COMPLETE"), stage(1, 8, 3)]
        executor = start(agent.socket, SPARK_LOG_URL_STDOUT=pages.log_url, PENSTOCK_APPLICATION="")
        pid, *said = executor.started()
        assert " ".join(said) == f"{tmp_path}/app work {homes[1]} {APPLICATION}"
        status = agent.status()
        [container] = status["containers"]
        assert (container["pid"], container["task"], container["class"]) == (int(pid), "executor-0", "regular")
        assert container["name"] == f"word count {APPLICATION}/0"
        [job] = status["jobs"]
        assert job["name"] == "word count"
        until(lambda: agent.status()["jobs"][0]["stages"], "no stages")
        assert [(each["tasks"], each["done"]) for each in agent.status()["jobs"][0]["stages"]] == [(4, 4), (8, 3)]
        assert executor.end(status=3) == (3, "", "to standard error\n")
    until(lambda: not agent.status()["jobs"], "the job stays")


#: Print the port on which it listens, as a driver does, until its standard input ends.
DRIVER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def test_its_driver_on_the_same_host_is_ranked_with_it_and_goes_on_after_it(
    start_agent: Start, master: MasterProcess, start: Callable[..., Executor]
) -> None:
    agent = start_agent(master=master.listen)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        url = f"spark://CoarseGrainedScheduler@127.0.0.1:{driver.stdout.readline().strip()}"
        executor = start(agent.socket, driver_url=url)
        executor.started()

        def lent() -> list[dict[str, Any]]:
            return [each for each in agent.status()["containers"] if each["pid"] == driver.pid]

        until(lambda: lent() and lent()[0]["state"] == "running", "the driver is in no container")
        (of_driver,), (job,) = lent(), agent.status()["jobs"]
        assert of_driver["job"] == of_driver["rank"]["job"] == job["job"]
        assert executor.end(status=0)[0] == 0
        until(lambda: lent()[0]["ended"], "the driver was not given back")
        assert driver.poll() is None


def test_it_dies_with_its_stand_in(start_agent: Start, master: MasterProcess, start: Callable[..., Executor]) -> None:
    agent = start_agent(master=master.listen)
    executor = start(agent.socket)
    pid = int(executor.started()[0])
    executor.process.kill()
    assert has_ended(pid), "the executor outlived its stand-in"


def test_a_second_signal_reaches_it_at_once(
    start_agent: Start, master: MasterProcess, start: Callable[..., Executor]
) -> None:
    agent = start_agent(master=master.listen)
    executor = start(agent.socket)
    pid = int(executor.started()[0])
    until(lambda: _catches(executor.process.pid, signal.SIGTERM), "signals are not its business yet")
    executor.process.send_signal(signal.SIGHUP)
    executor.process.send_signal(signal.SIGTERM)
    status, out, _ = executor.end()
    assert (status, out) == (7, "terminated\n")
    assert not Path(f"/proc/{pid}").exists()


def test_it_survives_the_agent(start_agent: Start, master: MasterProcess, start: Callable[..., Executor]) -> None:
    agent = start_agent(master=master.listen)
    executor = start(agent.socket)
    executor.started()
    agent.kill()
    successor = start_agent(master=master.listen)
    assert successor.status()["containers"][0]["state"] == "running"
    assert executor.end(status=5)[0] == 5


def _catches(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [caught] = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(int(caught, 16) & 1 << (number - 1))


def test_without_an_agent_it_runs_ungated(start: Callable[..., Executor], tmp_path: Path) -> None:
    executor = start(tmp_path / "none.sock")
    pid, *_ = executor.started()
    assert int(pid) == executor.process.pid
    status, _, err = executor.end(status=4)
    assert status == 4
    [line, _] = err.splitlines()
    assert line.startswith("penstock: ")
    assert line.endswith("; this executor runs outside of Penstock")


def test_without_a_master_it_runs_ungated(start_agent: Start, start: Callable[..., Executor]) -> None:
    executor = start(start_agent().socket)
    assert int(executor.started()[0]) == executor.process.pid
    assert "no master" in executor.end(status=0)[2]


async def test_descriptors_are_only_for_tasks_that_stay_here(start_agent: Start, connect: Any, tmp_path: Path) -> None:
    client = await connect(start_agent(node="alpha", master=tmp_path / "master.sock"))  # where no master is
    job = (await client.call("register_job", name="j"))["job"]
    task = {"task": "t", "usage": {}, "command": {"argv": ["true"], "stdio": "0" * 32}}
    for nodes in ([], ["beta"], ["alpha", "beta"]):
        with pytest.raises(Exception, match=r"tasks\[0\].command.stdio.*pin it"):
            await client.call("place", job=job, stage="s", tasks=[task | {"nodes": nodes}])
    await client.call("place", job=job, stage="s", tasks=[task | {"nodes": ["alpha"]}])
