"""What a demonstration runs: how many tasks and workers, and how the host's cores and memory are shared out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from demo.operations import OPERATIONS
from demo.records import JobSpec

MIB = 1024 * 1024
#: The interpreters of a job (its own and two workers').
_BASE_BYTES = 48 * MIB
#: What a job's workers hold between the stages, over its input (measured, with a margin).
_HELD = {"word-count": 0.3, "inverted-index": 0.5, "sort": 1.5}
#: Estimated memory of a task over its input (m2i of Ursa §4.2.1): the text, what is made of it, what is written.
MEMORY_TO_INPUT = 3
#: How many tasks of work each core shall have before it, and what it takes to give it one.
_TASKS_AHEAD = 3
_LATENCY_S = 0.2
#: More cores than this would be more than these inputs are worth; of a larger host the demo uses so many.
_MAX_CORES = 8


@dataclass(frozen=True)
class Plan:
    """Sizes are bytes. ``text_bytes`` is what was asked for; partitions come out a little larger.

    ``cpu_bytes_per_s`` is how fast a core gets through the jobs' maps, measured on a piece of the text.
    """

    directory: Path
    project: Path
    text_bytes: int
    cores: float
    partitions: int
    socket: Path | None = None
    cpu_max_enforced: bool = False
    idle_class_enforced: bool = False
    cpu_bytes_per_s: float = 10e6

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
        """Tasks of all jobs together."""
        return len(OPERATIONS) * (self.partitions + self.reducers)

    # ------------------------------------------------------------ shares

    @property
    def share(self) -> float:
        """Cores of each job when they are split statically."""
        return self.cores / len(OPERATIONS)

    @property
    def slots(self) -> int:
        """Task slots of a static executor: one more than it has cores, so that reading overlaps with computing."""
        return min(self.workers, -int(-self.share // 1) + 1)

    def slots_of(self, executor: str) -> int:
        """Return the task slots of a job: one more than it may use cores, so that reading overlaps with computing."""
        return self.slots if executor == "static" else self.workers + 1

    def affinity(self, index: int) -> tuple[int, ...]:
        """The cores that a job's share touches when it cannot be enforced otherwise."""
        usable = sorted(os.sched_getaffinity(0))
        begin, end = index * self.share, (index + 1) * self.share
        return tuple(core for at, core in enumerate(usable) if at < end - 1e-9 and at + 1 > begin + 1e-9)

    def job_bytes(self, name: str) -> int:
        """Memory promised to a job's container."""
        return _BASE_BYTES + int(_HELD[name] * self.text_bytes)

    @property
    def tasks_bytes(self) -> int:
        """Memory for the placed tasks of one job, M(j) of Ursa §4.2.1."""
        return MEMORY_TO_INPUT * 2 * self.workers * self._largest_bytes

    @property
    def _largest_bytes(self) -> int:
        return max(self.text_bytes // self.partitions, self.text_bytes // self.reducers)

    @property
    def jobs_bytes(self) -> int:
        """Memory for all jobs and their tasks."""
        return sum(map(self.job_bytes, OPERATIONS)) + len(OPERATIONS) * self.tasks_bytes

    @property
    def table_bytes(self) -> int:
        """What the regular table wants, in the middle of a run: so much that with the archive it is too much, however
        little the jobs hold by then, even if they are over."""
        return int(1.05 * self.jobs_bytes)

    @property
    def archive_bytes(self) -> int:
        """What the opportunistic archive takes."""
        return self.table_bytes

    @property
    def capacity_bytes(self) -> int:
        """Memory that the node offers: what is promised, and no more, so that the archive lives on what is unused."""
        return self.jobs_bytes + self.table_bytes

    @property
    def agent_settings(self) -> dict[str, str]:
        """Of the agent. Memory is what is preempted for here: CPU is not, for the archive yields that by itself."""
        return {
            "cores": f"{self.cores:g}",
            "memory_bytes": str(self.capacity_bytes),
            "t_preempt_memory": "0.9",
            "t_preempt_cpu": "1.0",
            "preempt_after": "30",
        }

    @property
    def ept_s(self) -> float:
        """Ursa's EPT: the time of some tasks of the larger stage on each core, so that a core has its next task before
        a round, its message and its read have passed. Ten times more on an emulated machine than on a real one."""
        return _TASKS_AHEAD * self._largest_bytes / self.cpu_bytes_per_s + _LATENCY_S

    @property
    def master_settings(self) -> dict[str, str]:
        """Of the master. Jobs that begin at the same moment have waited equally long, which leaves nothing for EJF to
        go by but how well their tasks fit; in the order of submission the first are done early. Until the agent has
        measured its rates, the master takes ours."""
        return {
            "ordering": "fifo",
            "ept_s": f"{self.ept_s:.3f}",
            "interval_s": f"{self.ept_s / 10:.3f}",
            "default_cpu_bytes_per_s": f"{self.cpu_bytes_per_s:.0f}",
            "http": "127.0.0.1:0",
        }

    @property
    def needed_bytes(self) -> int:
        """What the whole takes for a moment at worst."""
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
        """Of every process: what the interpreter needs to find us."""
        kept = ("PYTHONPATH", "LANG", "LC_ALL")
        return {name: os.environ[name] for name in kept if name in os.environ}

    def jobs(self, executor: str) -> list[JobSpec]:
        """The jobs under one executor."""
        static = executor == "static"
        return [
            JobSpec(
                name=name,
                corpus=str(self.text / "corpus.json"),
                output=str(self.output(executor, name)),
                result=str(self.directory / executor / f"{name}.result.json"),
                executor=executor,
                workers=self.workers,
                slots=self.slots_of(executor),
                cores=self.affinity(index) if static and not self.cpu_max_enforced else (),
                socket=str(self.socket or ""),
                memory_bytes=self.tasks_bytes,
            )
            for index, name in enumerate(OPERATIONS)
        ]


def _workers(cores: float) -> int:
    return max(2, int(cores))
