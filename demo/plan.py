"""The plan of a demonstration: the number of tasks and workers, and the shares of the host's cores and memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from demo.corpus import part_of
from demo.records import PENSTOCK, JobSpec

MIB = 1024 * 1024
#: The interpreters of a job (its own and two workers').
_BASE_BYTES = 48 * MIB
#: The memory of a job's workers between the stages, over its input (measured, with a margin).
_HELD = {"word-count": 0.3, "inverted-index": 0.5, "sort": 1.5}
#: The memory of a task over its input: the text, its result, its output.
_TASK_TO_INPUT = 3
#: More cores than this would be more than these inputs are worth; of a larger host the demo uses so many.
_MAX_CORES = 8


class PlannedJob(NamedTuple):
    """A job of a user: an operation over the first ``part`` of the text."""

    name: str
    operation: str
    part: float


#: In the order in which they are submitted: large ones first, which is the worst case for an order by arrival.
PLANNED_JOBS = (
    PlannedJob("inverted-index", "inverted-index", 1.0),
    PlannedJob("sort", "sort", 1.0),
    PlannedJob("word-count", "word-count", 1.0),
    PlannedJob("inverted-index-quarter", "inverted-index", 0.25),
    PlannedJob("sort-quarter", "sort", 0.25),
    PlannedJob("word-count-quarter", "word-count", 0.25),
    PlannedJob("sort-eighth", "sort", 0.125),
    PlannedJob("word-count-eighth", "word-count", 0.125),
)
#: Each user has a share of a static split: one indexes, one sorts, one counts.
USERS = ("inverted-index", "sort", "word-count")


@dataclass(frozen=True)
class Plan:
    """Sizes are bytes. ``text_bytes`` is the requested size; partitions come out a little larger."""

    directory: Path
    project: Path
    text_bytes: int
    cores: float
    partitions: int
    socket: Path | None = None
    cpu_max_enforced: bool = False
    idle_class_enforced: bool = False

    @classmethod
    def of(cls, directory: Path, project: Path, text_bytes: int, cores: float) -> Plan:
        """Map tasks of about 4 MiB, and several per worker; not more cores than are of use."""
        cores = min(cores, _MAX_CORES)
        partitions = max(8 * _workers(cores), min(64, text_bytes // (4 * MIB)))
        return cls(directory, project, text_bytes, cores, partitions)

    # ------------------------------------------------------------ tasks

    @property
    def workers(self) -> int:
        """Worker processes per job: as many as may compute at once."""
        return _workers(self.cores)

    @property
    def reducers(self) -> int:
        """Reduce tasks per job: of about 8 MiB of the text, and several per worker."""
        return max(4 * self.workers, min(8 * self.workers, self.text_bytes // (8 * MIB)))

    @property
    def tasks(self) -> int:
        """Tasks of all jobs together; each has its part of both stages' (:meth:`demo.corpus.Corpus.first`)."""
        stages = ((self.partitions, 1), (self.reducers, 2 * self.workers))
        return sum(part_of(planned.part, tasks, least) for planned in PLANNED_JOBS for tasks, least in stages)

    # ------------------------------------------------------------ shares

    @property
    def share(self) -> float:
        """Cores of each user when they are split statically."""
        return self.cores / len(USERS)

    @property
    def slots(self) -> int:
        """Task slots of a static executor: one more than it has cores, so that reading overlaps with computing."""
        return min(self.workers, -int(-self.share // 1) + 1)

    def slots_of(self, executor: str) -> int:
        """Return the task slots of a job: two a worker, so that one reads or writes while the other computes. With
        fewer, a job that is alone on the host leaves a part of it idle.
        """
        return self.slots if executor == "static" else 2 * self.workers

    def affinity(self, index: int) -> tuple[int, ...]:
        """The cores that a job's share touches when it cannot be enforced otherwise."""
        usable = sorted(os.sched_getaffinity(0))
        begin, end = index * self.share, (index + 1) * self.share
        return tuple(core for at, core in enumerate(usable) if at < end - 1e-9 and at + 1 > begin + 1e-9)

    def job_bytes(self, planned: PlannedJob) -> int:
        """Memory promised to a job's container."""
        return _BASE_BYTES + self._tasks_bytes + int(_HELD[planned.operation] * planned.part * self.text_bytes)

    @property
    def _tasks_bytes(self) -> int:
        """Return the memory of the tasks of one job that run at once."""
        largest = max(self.text_bytes // self.partitions, self.text_bytes // self.reducers)
        return _TASK_TO_INPUT * 2 * self.workers * largest

    @property
    def jobs_bytes(self) -> int:
        """Memory for all jobs."""
        return sum(map(self.job_bytes, PLANNED_JOBS))

    @property
    def table_bytes(self) -> int:
        """Return the memory that the regular table wants, in the middle of a run: with the archive it is too much,
        however little the jobs hold by then, even if they are over.
        """
        return int(1.05 * self.jobs_bytes)

    @property
    def archive_bytes(self) -> int:
        """Return the memory of the opportunistic archive."""
        return self.table_bytes

    @property
    def capacity_bytes(self) -> int:
        """Return the memory that the node offers: the promises, and no more, so that the archive lives on unused
        memory.
        """
        return self.jobs_bytes + self.table_bytes

    @property
    def agent_settings(self) -> dict[str, str]:
        """Return the agent's settings.

        Memory is preempted for here: CPU is not, as the archive yields that by itself.
        """
        return {
            "cores": f"{self.cores:g}",
            "memory_bytes": str(self.capacity_bytes),
            "t_preempt_memory": "0.9",
            "t_preempt_cpu": "1.0",
            "preempt_after": "30",
        }

    @property
    def master_settings(self) -> dict[str, str]:
        """Of the master: as it is installed."""
        return {"http": "127.0.0.1:0"}

    @property
    def needed_bytes(self) -> int:
        """Return the memory that the whole needs for a moment at worst."""
        return self.capacity_bytes + self.archive_bytes

    # ------------------------------------------------------------ processes

    @property
    def text(self) -> Path:
        """Where the partitions are."""
        return self.directory / "text"

    def output(self, executor: str, job: str) -> Path:
        """Where a job writes."""
        return self.directory / executor / job

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of every process: the interpreter needs it to find us."""
        kept = ("PYTHONPATH", "LANG", "LC_ALL")
        return {name: os.environ[name] for name in kept if name in os.environ}

    def jobs(self, executor: str) -> list[JobSpec]:
        """The jobs under one executor."""
        pinned = executor == "static" and not self.cpu_max_enforced
        return [
            JobSpec(
                name=planned.name,
                operation=planned.operation,
                part=planned.part,
                corpus=str(self.text / "corpus.json"),
                output=str(self.output(executor, planned.name)),
                result=str(self.directory / executor / f"{planned.name}.result.json"),
                workers=self.workers,
                slots=self.slots_of(executor),
                cores=self.affinity(USERS.index(planned.operation)) if pinned else (),
                socket=str(self.socket or "") if executor in PENSTOCK else "",
            )
            for planned in PLANNED_JOBS
        ]


def _workers(cores: float) -> int:
    return max(2, int(cores))
