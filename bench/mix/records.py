"""The records of each round, as JSON: tables can be made again of them, and several seeds and runs be merged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.mix.jobs import Job
from bench.mix.round import Done


class Origin(msgspec.Struct, frozen=True):
    """The origin of figures. ``command`` measures them again."""

    commit: str
    command: str
    machine: str
    began: str
    versions: dict[str, str]


class Record(msgspec.Struct, frozen=True):
    """A round of a plan in one way, with the archive or without.

    ``window_s``, ``load`` and ``cores`` are the plan's.
    """

    way: str
    seed: int
    window_s: float
    load: float
    with_archive: bool
    origin: Origin
    figures: dict[str, float]
    jobs: list[dict[str, Any]]
    cores: float = 2.0

    def save(self, directory: Path) -> None:
        """Write it to a file of its own."""
        directory.mkdir(parents=True, exist_ok=True)
        beside = "with" if self.with_archive else "without"
        file = directory / f"{self.way}-seed{self.seed}-{beside}-archive.json"
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))


def load(path: Path) -> Record:
    """Read a file of :meth:`Record.save`.

    Raises:
        msgspec.MsgspecError: it is no such record.
        OSError: it cannot be read.
    """
    return msgspec.json.decode(path.read_bytes(), type=Record)


def planned(record: Record) -> list[Job]:
    """Return the jobs of a round as they were planned.

    Raises:
        msgspec.ValidationError: they are no such jobs.
    """
    return msgspec.convert(record.jobs, list[Job])


def jobs_of(done: Sequence[Done]) -> list[dict[str, Any]]:
    """Return each job of a round with its outcome."""
    return [
        msgspec.to_builtins(each.job)
        | {
            "took_s": each.took_s,
            "exit_status": each.exit_status,
            "has_result": each.has_result,
            "failures": each.failures,
        }
        for each in done
    ]
