"""``python -m bench.spark_vm.guest POLICY SEED …``: one part of the benchmark, in the virtual machine."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.spark_vm import cluster, java
from bench.spark_vm.applications import APPLICATIONS
from bench.spark_vm.cluster import Driver
from bench.spark_vm.mix import Arrival, arrivals
from bench.spark_vm.observe import Observer
from bench.spark_vm.records import Part, Submitted
from demo import node

#: The disk with inputs, where Spark shuffles and writes, too.
DATA = Path("/data")
LEARN = "learn"
CORES = 2.0
_NAME = "spark"


def main(argv: list[str]) -> int:
    """Run the part; returns 0 if every application had an answer."""
    options = _parser().parse_args(argv)
    _mount()
    work = DATA / "spark"
    for each in ("local", "work"):
        (work / each).mkdir(parents=True)
    store = Path(options.store)
    agent = {
        "node": _NAME,
        "cores": str(CORES),
        "memory_bytes": str(options.memory_bytes),
        "disk_bytes_per_s": str(options.disk_bytes_per_s),
        "keep_ended": "1000",
    }
    policy = "minfrag" if options.policy == LEARN else options.policy
    master = {"executor_placement": policy, "store": str(store.absolute())}
    with node.running(work, agent, master) as up, cluster.running(work, up.socket) as gated:
        _say("Penstock and Spark are up")
        part = _Part(work, gated, options.timeout_s)
        if options.policy == LEARN:
            observer = part.learn(up.http, options.each)
        else:
            mix = arrivals(list(APPLICATIONS), each=options.each, interval_s=options.interval_s, seed=options.seed)
            observer = part.mix(up.http, mix)
    Part(
        policy=options.policy,
        seed=options.seed,
        cores=CORES,
        memory_bytes=options.memory_bytes,
        disk_bytes_per_s=options.disk_bytes_per_s,
        kernel=platform.release(),
        runs=part.runs,
        samples=observer.samples,
        executors=observer.executors(),
    ).write(Path(options.result))
    return 0 if all(run.answer for run in part.runs) else 1


class _Part:
    """Submits applications and keeps how they went."""

    def __init__(self, work: Path, gated: dict[str, str], timeout_s: float) -> None:
        self.runs: list[Submitted] = []
        self._work = work
        self._gated = gated
        self._timeout_s = timeout_s
        self._lock = threading.Lock()

    def learn(self, http: str, times: int) -> Observer:
        """Each application so many times, one after the other, on the empty host."""
        with Observer(http) as observer:
            for name in APPLICATIONS:
                driver = self._driver(name)
                driver.ready()
                _say(f"{observer.now_s():6.0f} s: {name} is ready")
                for number in range(times):
                    _forget_pages()
                    self._submit(driver, Arrival(name, number, observer.now_s()), observer)
                    observer.quiet()
                driver.close()
        return observer

    def mix(self, http: str, mix: list[Arrival]) -> Observer:
        """As they arrive; drivers are there before, two being prepared at a time."""
        drivers: dict[Arrival, Driver] = {}
        for first in range(0, len(mix), 2):
            pair = {each: self._driver(each.application) for each in mix[first : first + 2]}
            for driver in pair.values():
                driver.ready()
            drivers |= pair
            _say(f"{len(drivers)} of {len(mix)} drivers are ready")
        _forget_pages()
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

    def _driver(self, name: str) -> Driver:
        return Driver(name, APPLICATIONS[name], DATA / "input" / name, self._work, self._gated)

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


def _mount() -> None:
    for label, where, options in (("spark", java.HOME, "ro"), ("data", DATA, "noatime")):
        where.mkdir(exist_ok=True)
        if not os.path.ismount(where):
            subprocess.run(["mount", "-o", options, f"LABEL={label}", str(where)], check=True)


def _forget_pages() -> None:
    """Inputs come from the disk each time."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def _say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_vm.guest", description=__doc__)
    add = parser.add_argument
    add("policy", help=f"{LEARN}, or what places executors")
    add("seed", type=int)
    add("--each", type=int, required=True, help="runs of each application")
    add("--interval-s", type=float, required=True, help="mean time between two arrivals")
    add("--memory-bytes", type=int, required=True, help="what the agent offers")
    add("--disk-bytes-per-s", type=int, required=True, help="what the disk can do")
    add("--timeout-s", type=float, required=True, help="of one run")
    add("--store", required=True, help="the master's database")
    add("--result", required=True, help="where the figures go")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
