"""An application's settings: variables of its executors' environment, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from penstock.model.executor import Sizing
from penstock.model.units import QuantityError, parse_bytes

_PREFIX = "PENSTOCK_"
#: Variables that every client reads (penstock.paths).
_ELSEWHERE = frozenset({"PENSTOCK_SOCKET", "PENSTOCK_RUNTIME_DIR", "PENSTOCK_STATE_DIR"})
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All settings; each field is ``spark.executorEnv.PENSTOCK_<its name>`` in a job's configuration."""

    application: str = ""
    """The name under which runs of this program are recorded; empty: ``spark.app.name``."""
    cores: float = 0.0
    """Per executor (``0.5``), as Kubernetes' ``limit.cores``; 0: the number of tasks that it runs at once, which is
    ``spark.executor.cores``."""
    input_bytes: int = 0
    """The whole run's input (``4G``), which distinguishes runs of different size."""
    memory_overhead_bytes: int = 0
    """Memory of an executor beyond its heap; 0: a tenth of the heap, 384 MiB at least, Spark's default on other
    clusters. The variable is PENSTOCK_MEMORY_OVERHEAD (``1G``)."""
    sizing: Sizing = Sizing.SHARED
    """``hard``: its limits follow its predicted demand; ``shared``: its guarantees do."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read the settings from a process's environment.

        Raises:
            ValueError: one line that names the variable: an invalid value, or an unknown name that is similar to a
                known one (other variables with the same prefix are ignored).
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
        """Return an executor's memory: heap plus ``spark.executor.memoryOverhead``, as on Spark's other clusters."""
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
        raise ValueError(f"{name}: {said!r} is not a number of cores, such as 0.5")
    return cores


def _sizing(name: str, said: str) -> Sizing:
    try:
        return Sizing(said or Sizing.SHARED)
    except ValueError:
        raise ValueError(f"{name}: {said!r} is neither hard nor shared") from None
