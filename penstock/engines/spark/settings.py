"""What an application says about itself: variables of its executors' environment, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from penstock.model.executor import Sizing
from penstock.model.units import QuantityError, parse_bytes

_PREFIX = "PENSTOCK_"
#: What every client reads (penstock.paths).
_ELSEWHERE = frozenset({"PENSTOCK_SOCKET", "PENSTOCK_RUNTIME_DIR", "PENSTOCK_STATE_DIR"})
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """One declared table; each field is ``spark.executorEnv.PENSTOCK_<its name>`` of a job's configuration."""

    application: str = ""
    """What the runs of this program are kept under; empty: ``spark.app.name``."""
    cores: float = 0.0
    """Of each executor (``0.5``), as Kubernetes' ``limit.cores``; 0: as many as it runs tasks at once, which is what
    ``spark.executor.cores`` says."""
    input_bytes: int = 0
    """The whole run's input (``4G``), by which runs of different size are told apart."""
    memory_overhead_bytes: int = 0
    """What the executor needs beside its heap; 0: a tenth of the heap, 384 MiB at least, as Spark reckons elsewhere.
    The variable is PENSTOCK_MEMORY_OVERHEAD (``1G``)."""
    sizing: Sizing = Sizing.SHARED
    """``hard``: its limits follow its predicted demand; ``shared``: its guarantees do."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """What a process's environment says.

        Raises:
            ValueError: one line that names the variable: a value that it cannot have, or an unknown name that is near a
                known one (other variables that begin alike are not ours to judge).
        """
        known = tuple(
            f"{_PREFIX}{name}" for name in ("APPLICATION", "CORES", "INPUT_BYTES", "MEMORY_OVERHEAD", "SIZING")
        )
        for name in environment:
            if name.startswith(_PREFIX) and name not in known and name not in _ELSEWHERE:
                near = get_close_matches(name, known, 1, cutoff=0.8)
                if near:
                    raise ValueError(f"{name}: no such setting; did you mean {near[0]}?")
        said = [environment.get(name, "") for name in known]
        return cls(
            application=said[0][:128],
            cores=_cores(known[1], said[1]),
            input_bytes=_bytes(known[2], said[2]),
            memory_overhead_bytes=_bytes(known[3], said[3]),
            sizing=_sizing(known[4], said[4]),
        )

    def promise_bytes(self, heap_bytes: int) -> int:
        """The memory of an executor with such a heap: ``spark.executor.memoryOverhead`` of Spark's other clusters."""
        return heap_bytes + (self.memory_overhead_bytes or max(384 * _MIB, heap_bytes // 10))


def _bytes(name: str, said: str) -> int:
    if said in {"", "0"}:
        return 0
    try:
        return parse_bytes(said)
    except QuantityError as error:
        raise ValueError(f"{name}: {error}") from None


def _cores(name: str, said: str) -> float:
    try:
        cores = float(said or 0)
    except ValueError:
        cores = -1.0
    if not 0 <= cores < math.inf:
        raise ValueError(f"{name}: {said!r} is no number of cores, such as 0.5")
    return cores


def _sizing(name: str, said: str) -> Sizing:
    try:
        return Sizing(said or Sizing.SHARED)
    except ValueError:
        raise ValueError(f"{name}: {said!r} is neither hard nor shared") from None
