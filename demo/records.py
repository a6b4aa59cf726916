"""The records of a run: plain data that goes to JSON and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

#: The executors of a demonstration, in the order of its runs.
EXECUTORS = ("plain", "static", "first", "penstock", "beside")
#: The runs of Penstock: with jobs that it does not know, with known jobs, and with these beside an archive and a table.
PENSTOCK = ("first", "penstock", "beside")
#: The run with an opportunistic archive and a table that needs its memory. In the other runs the jobs are alone.
BESIDE = "beside"


class JobSpec(NamedTuple):
    """One job under one executor. Times everywhere are seconds of CLOCK_MONOTONIC, the same in every process.

    ``part`` is how much of the text it reads. ``slots`` are its task slots; ``socket`` is the agent's for Penstock.
    ``cores`` restricts the job to some cores where ``cpu.max`` cannot be enforced.
    """

    name: str
    operation: str
    part: float
    corpus: str
    output: str
    result: str
    workers: int
    slots: int = 0
    cores: tuple[int, ...] = ()
    socket: str = ""

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(self._asdict()), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> JobSpec:
        """Read a file of :meth:`save`."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        fields["cores"] = tuple(fields["cores"])
        return cls(**fields)


class Work(NamedTuple):
    """A monotask: when it was asked for, when it could begin (its grant), when it ended; the CPU time of its thread."""

    kind: str
    stage: str
    task: str
    asked: float
    began: float
    ended: float
    input_bytes: int
    cpu_s: float


class JobResult(NamedTuple):
    """The report of a job about itself.

    ``began`` is the time of its start command, ``ended`` that after its last output; ``cpu_s`` is the use of it and its
    workers since it began: starting interpreters is not in it.
    """

    name: str
    began: float
    ended: float
    cpu_s: float
    works: list[Work]

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(self._asdict()), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> JobResult:
        """Read a file of :meth:`save`."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        fields["works"] = [Work(*work) for work in fields["works"]]
        return cls(**fields)
