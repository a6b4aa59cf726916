"""``python -m bench.spark_vm.guest SIDE SEED …``: one part of the benchmark, in the virtual machine."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.spark_vm import cluster, java, objects
from bench.spark_vm.applications import APPLICATIONS
from bench.spark_vm.cluster import Driver
from bench.spark_vm.mix import Arrival, arrivals
from bench.spark_vm.observe import Observer
from bench.spark_vm.records import Part, Side, Submitted
from demo import node

#: The disk with inputs, where Spark shuffles and writes, too.
DATA = Path("/data")
LEARN = "learn"
#: In the directory of the host's: the master's database, the figures, the logs.
STORE, RESULT, LOGS = "store.db", "part.json", "logs.tar.gz"
#: The most data that waits to be written: inputs are small, too, and shuffled and written data is to reach the disk.
DIRTY_BYTES = 4 << 20
CORES = 2.0
#: The cgroup that limits the machine's disk (init.sh).
CGROUP = "/sys/fs/cgroup/host/penstock"
_NAME = "spark"


def main(argv: list[str]) -> int:
    """Run the part; returns 0 if every application had an answer."""
    options = _parser().parse_args(argv)
    _mount()
    _remember_spark()
    work = DATA / "spark"
    for each in ("local", "work"):
        (work / each).mkdir(parents=True)
    agent = {
        "node": _NAME,
        "cores": str(CORES),
        "memory_bytes": str(options.memory_bytes),
        "keep_ended": "1000",
        "cgroup_root": CGROUP,
    }
    side: Side = options.side
    learning = side.policy == LEARN
    database = work / STORE
    if not learning:
        shutil.copy(options.shared / STORE, database)
    master = {
        "executor_placement": "minfrag" if learning else side.policy,
        "executor_demand": side.demand,
        "store": str(database),
    }
    with (
        _logs(work, options.shared / LOGS),
        node.running(work, agent, master) as up,
        cluster.running(work, up.socket) as gated,
        objects.serving(DATA / "input", options.stream_bytes_per_s) as store,
    ):
        _say("Penstock and Spark are up")
        part = _Part(work, gated | {"spark.executorEnv.PENSTOCK_SIZING": side.sizing}, store, options.timeout_s)
        if learning:
            observer = part.learn(up.http, options.each)
        else:
            mix = arrivals(list(APPLICATIONS), each=options.each, interval_s=options.interval_s, seed=options.seed)
            observer = part.mix(up.http, mix)
    Part(
        side=side,
        seed=options.seed,
        cores=CORES,
        memory_bytes=options.memory_bytes,
        disk_bytes_per_s=options.disk_bytes_per_s,
        kernel=platform.release(),
        runs=part.runs,
        samples=observer.samples,
        executors=observer.executors(),
    ).write(options.shared / RESULT)
    if learning:
        shutil.copy(database, options.shared / STORE)
    return 0 if all(run.answer for run in part.runs) else 1


class _Part:
    """Submits applications and keeps how they went."""

    def __init__(self, work: Path, gated: dict[str, str], store: str, timeout_s: float) -> None:
        self._store = store
        self.runs: list[Submitted] = []
        self._work = work
        self._gated = gated
        self._timeout_s = timeout_s
        self._lock = threading.Lock()

    def learn(self, http: str, times: int) -> Observer:
        """Each application so many times, one after the other, on the empty host."""
        drivers = self._drivers([Arrival(name, 0, 0.0) for name in APPLICATIONS])
        with Observer(http) as observer:
            for number in range(times):
                for each, driver in drivers.items():
                    _forget_inputs()
                    self._submit(driver, Arrival(each.application, number, observer.now_s()), observer)
                    observer.quiet()
                    if number < times - 1:
                        driver.ready()
        for driver in drivers.values():
            driver.close()
        return observer

    def mix(self, http: str, mix: list[Arrival]) -> Observer:
        """As they arrive."""
        drivers = self._drivers(mix)
        _forget_inputs()
        with Observer(http) as observer:
            threads = []
            for arrival, driver in drivers.items():
                time.sleep(max(0.0, arrival.at_s - observer.now_s()))
                threads.append(threading.Thread(target=self._submit, args=(driver, arrival, observer)))
                threads[-1].start()
            for thread in threads:
                thread.join()
            observer.quiet()
        for driver in drivers.values():
            driver.close()
        return observer

    def _drivers(self, mix: list[Arrival]) -> dict[Arrival, Driver]:
        """They are there before their applications arrive, two being prepared at a time."""
        drivers: dict[Arrival, Driver] = {}
        for first in range(0, len(mix), 2):
            pair = {each: self._driver(each.application) for each in mix[first : first + 2]}
            for driver in pair.values():
                driver.ready()
            drivers |= pair
            _say(f"{len(drivers)} of {len(mix)} drivers are ready")
        return drivers

    def _driver(self, name: str) -> Driver:
        return Driver(name, APPLICATIONS[name], f"{self._store}{name}", DATA / "input" / name, self._work, self._gated)

    def _submit(self, driver: Driver, arrival: Arrival, observer: Observer) -> None:
        began_s = observer.now_s()
        try:
            answer, failure = driver.submit(self._timeout_s)
        except cluster.SparkFailed as error:
            answer, failure = "", str(error)
        run = Submitted(
            application=arrival.application,
            number=arrival.number,
            arrived_s=began_s,
            ended_s=observer.now_s(),
            answer=answer,
            failure=failure,
        )
        with self._lock:
            self.runs.append(run)
            took = f"{run.ended_s:6.0f} s: {run.application} {run.number} took {run.ended_s - began_s:.0f} s"
            _say(f"{took}: {answer or failure}")


@contextlib.contextmanager
def _logs(work: Path, to: Path) -> Iterator[None]:
    """Keep the logs of Spark, of drivers and of Penstock, however it ends."""
    try:
        yield
    finally:
        with tarfile.open(to, "w:gz") as archive:
            for file in (*work.rglob("*.log"), *work.rglob("stderr")):
                archive.add(file, file.relative_to(work))


def _mount() -> None:
    for label, where, options in (("spark", java.HOME, "ro"), ("data", DATA, "noatime")):
        where.mkdir(exist_ok=True)
        if not os.path.ismount(where):
            subprocess.run(["mount", "-o", options, f"LABEL={label}", str(where)], check=True)
    for name, most in (("dirty_background_bytes", DIRTY_BYTES // 4), ("dirty_bytes", DIRTY_BYTES)):
        Path("/proc/sys/vm", name).write_text(str(most))


def _remember_spark() -> None:
    """Read Spark into the page cache: a host that runs Spark all day has it there, and the learnt runs are no cold
    start.
    """
    jdk = java.JDK / "lib"
    for file in (*java.HOME.glob("lib/*.jar"), *java.HOME.glob("*.jsa"), *jdk.rglob("*.so"), jdk / "modules"):
        with file.open("rb") as opened:
            while opened.read(1 << 20):
                pass


def _forget_inputs() -> None:
    """They come from the disk each time."""
    os.sync()
    for file in (DATA / "input").iterdir():
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_vm.guest", description=__doc__)
    add = parser.add_argument
    add("side", type=Side.read, help=f"{LEARN}, or how executors are placed and sized: POLICY[:DEMAND[:SIZING]]")
    add("seed", type=int)
    add("--each", type=int, required=True, help="runs of each application")
    add("--interval-s", type=float, required=True, help="mean time between two arrivals")
    add("--memory-bytes", type=int, required=True, help="memory that the agent offers")
    add("--disk-bytes-per-s", type=int, required=True, help="rate of the disk")
    add("--stream-bytes-per-s", type=int, required=True, help="rate of the object store for one reader")
    add("--timeout-s", type=float, required=True, help="of one run")
    add(
        "shared",
        type=Path,
        help="directory of the host's: learnt runs come from it, and figures and logs go there",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
