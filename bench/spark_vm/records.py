"""The machine's measurements, and the records between two parts of the benchmark (JSON)."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec


class Side(msgspec.Struct, frozen=True):
    """How executors are treated in a part: the master's ``executor_placement`` and ``executor_demand``, and sizing."""

    policy: str
    demand: str = "peak"
    sizing: str = "hard"

    @classmethod
    def read(cls, text: str) -> Self:
        """Of ``POLICY[:DEMAND[:SIZING]]``."""
        return cls(*text.split(":"))

    def __str__(self) -> str:
        """Return its text without defaults."""
        said = [self.policy, self.demand, self.sizing]
        while len(said) > 1 and said[-1] == Side.__struct_defaults__[len(said) - 2]:
            said.pop()
        return ":".join(said)


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an application; times in seconds since its part began. ``answer`` is empty if it failed."""

    application: str
    number: int
    arrived_s: float
    ended_s: float = 0.0
    answer: str = ""
    failure: str = ""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's latest sample at a time; ``executors`` is of all of them together, ``running`` how many they are."""

    at_s: float
    cpu_cores: float
    memory_bytes: int
    disk_busy: float
    disk_bytes_per_s: float
    running: int
    executors_cpu_cores: float
    executors_memory_bytes: int
    executors_disk_bytes_per_s: float
    promised_cores: float


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """An executor as the agent knows it: when it began, and for how long it ran."""

    application: str
    run: str
    began_s: float
    ended_s: float
    cpu_seconds: float
    memory_peak_bytes: int
    slots: int
    reprovisioned: int
    ended_by: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one machine. ``seed`` is of the arrivals; learning has none."""

    side: Side
    seed: int
    cores: float
    memory_bytes: int
    disk_bytes_per_s: int
    kernel: str
    runs: list[Submitted]
    samples: list[Sample]
    executors: list[Executed]

    @classmethod
    def read(cls, path: Path) -> Self:
        """From its file."""
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path) -> None:
        """To a file, whole or not at all."""
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(self))
        partial.rename(path)
