"""A standalone Spark cluster of one host, as its users run it, and the drivers of applications."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from bench.spark_vm import java
from bench.spark_vm.applications import CORES, MEMORY_MIB, TASKS, Application

_MASTER = "spark://127.0.0.1:7077"
_START_TIMEOUT_S = 600.0
#: Spark itself shall delay no executor: Penstock decides on starts.
_PLENTY = ("--cores", "256", "--memory", "256g")
#: Not the Z collector, with which heaps can follow: now and then its threads fault for ever on this kernel. So the JVM
#: needs no requests, which without signals it could not get.
_EXECUTORS_OPTIONS = (*java.QUICK, "-XX:+UseSerialGC", "-Xrs", f"-XX:SharedArchiveFile={java.EXECUTORS_ARCHIVE}")
#: A driver is registered before its application arrives: its executor is asked for when there are tasks.
_REGISTERED = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "1",
    "spark.dynamicAllocation.executorIdleTimeout": "1h",
}


class SparkFailed(Exception):  # noqa: N818 - named for the reader of the message
    """A daemon or job did not start or ended early; the message has the end of its log."""


@contextlib.contextmanager
def running(work: Path, agent_socket: Path) -> Iterator[dict[str, str]]:
    """Run Spark's Master and Worker; yield the configuration of jobs whose executors are Penstock's."""
    environment = {**os.environ, **java.ENVIRONMENT, "SPARK_LOCAL_DIRS": str(work / "local")}
    environment["PENSTOCK_SOCKET"] = str(agent_socket)
    with contextlib.ExitStack() as stack:
        for main, arguments, ready in (
            ("master.Master", ("--port", "7077", "--webui-port", "8080"), "I have been elected leader"),
            ("worker.Worker", (*_PLENTY, "--work-dir", str(work / "work"), _MASTER), "Successfully registered"),
        ):
            command = java.command(
                f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", *arguments,
                options=("-Xmx192m", f"-XX:SharedArchiveFile={java.ARCHIVE}"), properties={},
            )  # fmt: skip
            stack.enter_context(_daemon(command, work / f"{main}.log", ready, environment))
        yield _gated(work)


@contextlib.contextmanager
def _daemon(command: list[str], log: Path, ready: str, environment: Mapping[str, str]) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        give_up = time.monotonic() + _START_TIMEOUT_S
        while ready not in (said := log.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > give_up:
                raise SparkFailed(f"{log.stem} did not start: {said[-2000:]}")
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait()


def _gated(work: Path) -> dict[str, str]:
    """Return the output of ``penstock spark-config``."""
    command = [
        sys.executable, "-m", "penstock.cli.main", "spark-config", "--java-home", str(java.JDK),
        "--directory", str(work / "java"),
    ]  # fmt: skip
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(line.split(maxsplit=1) for line in said.splitlines() if line)


class Driver:
    """The driver of one application: it starts at once, and :meth:`ready` waits until it can submit (again)."""

    def __init__(
        self, name: str, application: Application, source: str, file: Path, work: Path, gated: Mapping[str, str]
    ) -> None:
        """``source`` is where the application reads ``file`` from."""
        self.name = name
        properties = {
            **application.properties(),
            **gated,
            "spark.app.name": name,
            "spark.master": _MASTER,
            "spark.jars": str(java.JAR),
            **_REGISTERED,
            "spark.cores.max": str(TASKS),
            "spark.executor.cores": str(TASKS),
            "spark.executor.memory": f"{MEMORY_MIB}m",
            "spark.executor.extraJavaOptions": " ".join(_EXECUTORS_OPTIONS),
            # Spark's pages have it, too, but emulated they answer too late.
            "spark.executorEnv.PENSTOCK_APPLICATION": name,
            "spark.executorEnv.PENSTOCK_CORES": str(CORES),
            "spark.executorEnv.PENSTOCK_INPUT_BYTES": str(file.stat().st_size),
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(work / "local"),
            "spark.ui.port": "0",
        }
        self._work = work
        self._serial = 0
        number = len(list(work.glob(f"driver-{name}-*.log")))
        self._log = work / f"driver-{name}-{number}.log"
        command = java.command(
            application.main, source, str(java.LITTLE / name), str(work / f"little-{name}-{number}"),
            options=("-Xmx512m", f"-XX:SharedArchiveFile={java.ARCHIVE}"), properties=properties,
        )  # fmt: skip
        self._prefix = f"{name}-{number}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **java.ENVIRONMENT},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def ready(self) -> None:
        """Wait until its classes are loaded and the cluster knows it; once before each :meth:`submit`.

        Raises:
            SparkFailed: it ended.
        """
        if (said := self._said.get(timeout=_START_TIMEOUT_S)) != "ready":
            raise SparkFailed(f"driver of {self.name}: {said}: {self._log.read_text(errors='replace')[-2000:]}")

    def submit(self, timeout_s: float) -> tuple[str, str]:
        """Run the application once: the answer, and why there is none.

        Raises:
            SparkFailed: it did not end in time.
        """
        assert self._process.stdin is not None
        self._serial += 1
        self._process.stdin.write(f"{self._work}/output-{self._prefix}-{self._serial}\n".encode())
        self._process.stdin.flush()
        try:
            kind, _, said = self._said.get(timeout=timeout_s).partition(" ")
        except queue.Empty:
            raise SparkFailed(f"{self._prefix} has not ended after {timeout_s:g} s") from None
        return (said, "") if kind == "result" else ("", f"{kind} {said}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._said.put(line.decode(errors="replace").strip())
        self._said.put("ended")
