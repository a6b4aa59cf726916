"""The records of jobs and runs, and their figures. Times are seconds of CLOCK_MONOTONIC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple


class JobSpec(NamedTuple):
    """One job: which queries in which order, on which data, with how many workers and threads.

    ``memory_bytes`` is for each worker; ``share`` is the cgroup, ``cores`` the affinity of a static share. ``at_once``:
    all queries are submitted before the first has ended. It begins ``arrives_s`` after its start command.
    """

    name: str
    data: str
    scale: float
    queries: tuple[int, ...]
    workers: int
    threads: int
    memory_bytes: int
    result: str
    share: str = ""
    cores: tuple[int, ...] = ()
    at_once: bool = False
    arrives_s: float = 0.0

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(self._asdict()), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> JobSpec:
        """Read a file of :meth:`save`."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(**fields | {"queries": tuple(fields["queries"]), "cores": tuple(fields["cores"])})


class JobResult(NamedTuple):
    """The report of a job about itself.

    ``cpu_s`` is all CPU time of its processes from ``began`` to ``ended``, ``task_cpu_s`` that of the threads that ran
    tasks, in tasks. ``query_s`` and ``rows`` are by query, in the order in which they ran.
    """

    name: str
    began: float
    ended: float
    cpu_s: float
    task_cpu_s: float
    query_s: dict[str, float]
    rows: dict[str, int]

    @property
    def job_s(self) -> float:
        """Job completion time."""
        return self.ended - self.began

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(self._asdict()), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> JobResult:
        """Read a file of :meth:`save`."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


class Run(NamedTuple):
    """All jobs at once, one way. ``slot_s`` is how long CPU slots of the agent were held; ``threads`` is a job's.

    ``busy_s`` is the CPU time of all processes of the host meanwhile. ``orders``: how the agent had ordered the jobs,
    one after the other, first the first; where a master orders them.
    """

    way: str
    cores: float
    threads: int
    jobs: list[JobResult]
    slot_s: float = 0.0
    busy_s: float = 0.0
    orders: list[list[str]] = []  # noqa: RUF012 - a named tuple's fields cannot be changed

    @property
    def makespan_s(self) -> float:
        """From the beginning of the first job to the end of the last."""
        return max(job.ended for job in self.jobs) - min(job.began for job in self.jobs)


class Figures(NamedTuple):
    """Core-seconds: ``x`` allocated, ``y`` available, ``z`` used of the allocated ones (Ursa §5); ``used`` in all.

    Static: X is every job's share for as long as it ran. Oversubscribed: every job was promised as many cores as it has
    threads, so that X exceeds Y. Penstock: X is the time for which CPU slots were held, Z the use of tasks in them;
    schedulers, communication and start-up are in neither there, and in ``used``. ``others``: the host's use meanwhile
    by no job, Penstock and the end of the jobs' clusters in it; a quiet host has little of it.
    """

    makespan_s: float
    mean_job_s: float
    x: float
    y: float
    z: float
    used: float
    task_cpu: float
    others: float

    @property
    def se(self) -> float:
        """Scheduling efficiency, X/Y."""
        return self.x / self.y

    @property
    def ue(self) -> float:
        """Utilization efficiency, Z/X."""
        return self.z / self.x if self.x else 0.0

    @property
    def utilization(self) -> float:
        """All CPU time of the jobs over all there was."""
        return self.used / self.y

    @classmethod
    def of(cls, run: Run) -> Figures:
        """The figures of one run."""
        lasted = sum(job.job_s for job in run.jobs)
        used = sum(job.cpu_s for job in run.jobs)
        in_tasks = sum(job.task_cpu_s for job in run.jobs)
        gated = run.way.startswith("gated")
        promised = run.cores / len(run.jobs) if run.way.startswith("static") else float(run.threads)
        return cls(
            makespan_s=run.makespan_s,
            mean_job_s=lasted / len(run.jobs),
            x=run.slot_s if gated else promised * lasted,
            y=run.cores * run.makespan_s,
            z=in_tasks if gated else used,
            used=used,
            task_cpu=in_tasks,
            others=max(0.0, run.busy_s - used),
        )
