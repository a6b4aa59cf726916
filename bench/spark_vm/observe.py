"""The agent's samples, kept as a series while a part runs; and its executors, when they have ended."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from types import TracebackType
from typing import Any, Self

from bench.spark_vm.records import Executed, Sample

_TIMEOUT_S = 60.0
_QUIET_S = 300.0


class Observer:
    """Asks an agent for its status every ``interval_s`` seconds, from a thread of its own."""

    def __init__(self, http: str, interval_s: float = 3.0) -> None:
        self.samples: list[Sample] = []
        self._url = f"http://{http}/status"
        self._interval_s = interval_s
        self._began = time.monotonic()
        self._began_at = time.time()
        self._containers: dict[str, dict[str, Any]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="observer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def now_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def quiet(self) -> None:
        """Wait until every executor has ended: an application has its answer before that.

        Raises:
            TimeoutError: one has not.
        """
        give_up = time.monotonic() + _QUIET_S
        while any(each["ended"] is None for each in self._containers.values()):
            if time.monotonic() > give_up:
                raise TimeoutError(f"executors are still there {_QUIET_S:g} s after their applications' ends")
            time.sleep(self._interval_s)

    def executors(self) -> list[Executed]:
        """All that were seen, those that ended in the order in which they began."""
        found = [self._executed(each) for each in self._containers.values() if each["ended"] is not None]
        return sorted(found, key=lambda each: each.began_s)

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._look()
        self._look()

    def _look(self) -> None:
        with urllib.request.urlopen(self._url, timeout=_TIMEOUT_S) as answer:
            status = json.load(answer)
        executors = [each for each in status["containers"] if each.get("executor")]
        self._containers = self._containers | {each["container"]: each for each in executors}  # others read it
        uses = [each["sample"] for each in executors if each["ended"] is None and each["sample"]]
        host = status["host"]
        self.samples.append(
            Sample(
                at_s=self.now_s(),
                cpu_cores=host["cpu_percent"] / 100 * status["capacity"]["cores"],
                memory_bytes=host["memory_used_bytes"],
                disk_busy=host["disk_busy"] or 0.0,
                disk_bytes_per_s=host["disk_read_bytes_per_s"] + host["disk_write_bytes_per_s"],
                running=len(uses),
                executors_cpu_cores=sum(use["cpu_cores"] for use in uses),
                executors_memory_bytes=sum(use["memory_bytes"] for use in uses),
                executors_disk_bytes_per_s=sum(use["disk_bytes_per_s"] for use in uses),
                promised_cores=status["cores"]["promised"],
            )
        )

    def _executed(self, container: dict[str, Any]) -> Executed:
        executor, ended = container["executor"], container["ended"]
        began_s = container["started_at"] - self._began_at
        return Executed(
            application=executor["application"],
            run=executor["run"],
            began_s=began_s,
            ended_s=began_s + ended.get("wall_seconds", 0.0),
            cpu_seconds=ended.get("cpu_seconds", 0.0),
            memory_peak_bytes=ended.get("memory_peak_bytes", 0),
            slots=executor["slots"] or 0,
            reprovisioned=executor["reprovisioned"],
            ended_by=f"{ended['by']} {ended.get('exit_status', '')}".strip(),
        )
