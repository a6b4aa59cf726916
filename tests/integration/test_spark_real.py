"""A Spark standalone cluster, unchanged, and an unchanged job with one line of configuration more.

Needs Java 17 or newer and pyspark (the extra ``spark``, 430 MB): ``make test-spark`` has them. Where there is pyspark,
with CI=true there must be a Java.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.spark import java_home
from tests.integration.conftest import MasterProcess, until

_PYSPARK = importlib.util.find_spec("pyspark")
_JAVA = java_home.find_java()
pytestmark = [
    pytest.mark.skipif(_PYSPARK is None, reason="elsewhere: make test-spark has pyspark"),
    pytest.mark.skipif(_JAVA is None and os.environ.get("CI") != "true", reason="no Java: openjdk-17-jre-headless"),
    pytest.mark.timeout(600),
]
Start = Callable[..., Any]
WAIT_S = 300
SLOT_S = 3.0
#: Count words in two stages, in Python workers; then wait for a line and end.
JOB = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("word count").getOrCreate()
words = spark.sparkContext.parallelize([f"w{n % 7}" for n in range(1000)], 4)
print("COUNTED", sorted(words.map(lambda w: (w, 1)).reduceByKey(lambda a, b: a + b).collect()), flush=True)
open(sys.argv[1]).read()
spark.stop()
"""


class Process:
    """A JVM of Spark's, and its output, line by line."""

    def __init__(self, environment: dict[str, str], *command: str) -> None:
        self.process = subprocess.Popen(
            ["nice", *command], env=os.environ | environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.written: list[str] = []

    def until(self, pattern: str) -> re.Match[str]:
        """The first line from now on with this in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.written.append(line)
            if found := re.search(pattern, line):
                return found
        pytest.fail(f"it ended without {pattern!r}:\n{''.join(self.written[-50:])}")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)  # a job that waits for `go` is a child of its JVM
        self.process.communicate(timeout=WAIT_S)


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts something of Spark's."""
    assert _PYSPARK is not None
    assert _PYSPARK.origin is not None
    home = Path(_PYSPARK.origin).parent
    environment = {
        "JAVA_HOME": str(_JAVA), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"), "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    started: list[Process] = []

    def begin(program: str, *arguments: str) -> Process:
        started.append(Process(environment, str(home / "bin" / program), *arguments))
        return started[-1]

    yield begin
    for each in reversed(started):
        each.end()


def test_an_unchanged_job_runs_in_containers(
    start_agent: Start, master: MasterProcess, spark: Callable[..., Process], tmp_path: Path
) -> None:
    assert _JAVA is not None, "no Java: openjdk-17-jre-headless"
    agent = start_agent(master=master.listen, memory_bytes=4 << 30)
    java_home.make(tmp_path / "java", _JAVA)
    (tmp_path / "job.py").write_text(JOB)
    go = tmp_path / "go"
    os.mkfifo(go)
    page = ("--webui-port", "0")
    of_spark = spark(
        "spark-class", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", *page
    )
    address = of_spark.until(r"Starting Spark master at (spark://\S+)")[1]
    of_spark.until("elected leader")
    worker = spark(
        "spark-class", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "2", "--memory", "2g",
        *page, address,
    )  # fmt: skip
    worker.until("Successfully registered with master")
    job = spark(
        "spark-submit", "--master", address, "--executor-cores", "1", "--executor-memory", "500m",
        "--conf", "spark.ui.port=0",
        "--conf", f"spark.executorEnv.JAVA_HOME={tmp_path}/java",
        "--conf", f"spark.executorEnv.PENSTOCK_SOCKET={agent.socket}",
        str(tmp_path / "job.py"), str(go),
    )  # fmt: skip
    counted = job.until("COUNTED (.*)")[1]
    assert counted == str([(f"w{n}", 143 if n < 6 else 142) for n in range(7)])
    until(lambda: {each["name"] for each in agent.status()["jobs"]} == {"word count"}, "it is no job")
    driver = until(
        lambda: [each for each in agent.status()["containers"] if not each["task"]], "its driver has no rank"
    )
    assert [each["pid"] for each in driver] == [job.process.pid], "the JVM that spark-submit has become"
    executors = [each for each in agent.status()["containers"] if each["task"]]
    assert {each["task"] for each in executors} == {"executor-0", "executor-1"}
    assert driver[0]["job"] in {each["job"] for each in executors}
    for each in executors:
        assert re.fullmatch(r"word count app-\S+/[01]", each["name"])
        assert "java" in Path(f"/proc/{each['pid']}/exe").resolve().name
    until(lambda: all(map(_both_stages_are_done, agent.status()["jobs"])), "its stages are not done")
    time.sleep(3 * SLOT_S)  # the recording has to go on behind the end of the last stage, or that is no stage's end
    go.write_text("go")
    worker.until("Executor .* finished with state")
    worker.until("Executor .* finished with state")
    ended = [each["ended"] for each in agent.status()["containers"] if each["task"]]
    assert [(each["by"], each["exit_status"]) for each in ended] == [("exit", 0), ("exit", 0)]
    # Where the executors end before their driver has reported the end of the application, Spark starts another one.
    log, *_ = sorted((tmp_path / "work").glob("*/*/stderr"))
    assert "Driver commanded a shutdown" in log.read_text()
    _is_learnt(master)


def _is_learnt(master: MasterProcess) -> None:
    """The next run is predicted by this one: both executors, stage by stage."""
    kept = until(lambda: _profiles(master, ""), "no run was kept")
    user = getpass.getuser()
    assert [(each["user"], each["application"], each["runs"]) for each in kept] == [(user, "word count", 1)]
    [run] = _profiles(master, urllib.parse.quote(f"/{user}/word count"))["runs"]
    assert run["run"].startswith("app-")
    assert run["executors"] == 2
    assert run["settings"]["cores"] == 1
    assert len(run["stages"]) == 3, "the job's two stages are known, and the part behind them"
    assert run["stages"][-1] == len(run["mean"][0])
    # On a busy host a slot may be without a reading.
    assert sum(cores for cores in run["mean"][0] if cores is not None) > 0, "a JVM takes some CPU"


def _profiles(master: MasterProcess, path: str) -> Any:
    return json.loads(master.running.get(f"/profiles{path}"))


def _both_stages_are_done(job: dict[str, Any]) -> bool:
    return [(stage["tasks"], stage["done"]) for stage in job["stages"]] == [(4, 4), (4, 4)]
