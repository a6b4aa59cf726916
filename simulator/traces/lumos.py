"""Parse lumos: sampled resource use of HiBench jobs on one host of 8 cores and 32 GB (demand that varies over time)."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable

import msgspec

from penstock.model.resource_vector import ResourceVector
from simulator.traces.errors import TraceError

_CORES = 8
_KIB = 1024
_NUMBERS = (
    "interval_s",
    "t_s",
    "cpu_pct_of_8",
    "mem_used_kb_excl_cache",
    "disk_rd_kb_s",
    "disk_wr_kb_s",
    "net_rx_kb_s",
    "net_tx_kb_s",
)
_NEEDED = ("workload", "run", *_NUMBERS)


class LumosSample(msgspec.Struct, frozen=True, kw_only=True):
    """The mean use over one interval that begins ``t_s`` seconds into the run. Memory is without the page cache."""

    t_s: float
    cpu_cores: float
    memory_bytes: float
    disk_read_bytes_per_s: float
    disk_write_bytes_per_s: float
    network_receive_bytes_per_s: float
    network_send_bytes_per_s: float

    @property
    def amounts(self) -> ResourceVector:
        """Return the use as a vector.

        The network is the loopback device, where each sent byte is also received: only sent bytes are counted.
        """
        disk_bytes_per_s = self.disk_read_bytes_per_s + self.disk_write_bytes_per_s
        return ResourceVector(self.cpu_cores, disk_bytes_per_s, self.network_send_bytes_per_s, self.memory_bytes)


class LumosRun(msgspec.Struct, frozen=True, kw_only=True):
    """One repeat of a workload. The network's figures are of the loopback device."""

    workload: str
    run: int
    interval_s: float
    samples: tuple[LumosSample, ...]


def lumos(lines: Iterable[str], *, where: str = "lumos") -> list[LumosRun]:
    """Return the runs of ``lumos_series.csv``, in the order of their first lines.

    Raises:
        TraceError: a column is missing from the header, or a field is no number ≥ 0.
    """
    reader = csv.DictReader(lines)
    missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
    if missing:
        raise TraceError(f"{where}:1: the header has no column {missing[0]!r}")
    runs: dict[tuple[str, int, float], list[LumosSample]] = {}
    for row in reader:
        at = f"{where}:{reader.line_num}"
        values = {name: _number(row[name], name, at) for name in _NUMBERS}
        run = int(_number(row["run"], "run", at))
        runs.setdefault((row["workload"], run, values["interval_s"]), []).append(_sample(values))
    return [
        LumosRun(workload=workload, run=run, interval_s=interval_s, samples=tuple(samples))
        for (workload, run, interval_s), samples in runs.items()
    ]


def _sample(values: dict[str, float]) -> LumosSample:
    return LumosSample(
        t_s=values["t_s"],
        cpu_cores=values["cpu_pct_of_8"] / 100 * _CORES,
        memory_bytes=values["mem_used_kb_excl_cache"] * _KIB,
        disk_read_bytes_per_s=values["disk_rd_kb_s"] * _KIB,
        disk_write_bytes_per_s=values["disk_wr_kb_s"] * _KIB,
        network_receive_bytes_per_s=values["net_rx_kb_s"] * _KIB,
        network_send_bytes_per_s=values["net_tx_kb_s"] * _KIB,
    )


def _number(text: str | None, column: str, at: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise TraceError(f"{at}: {column}: {text!r} is not a number from 0 on")
    return value
