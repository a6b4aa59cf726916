"""Forecasts of short runs: a part of a slot counts as that part, from the agent to the forecast."""

from __future__ import annotations

import pytest

from agent.core.snapshot import ContainerUse, Snapshot
from agent.core.surrogate import MonitorSurrogate
from bench.prediction import measure
from master.core import events as e
from penstock.wire import master_api as api
from simulator.traces.lumos import LumosRun, LumosSample
from tests.unit.master.cluster_bed import EXIT
from tests.unit.master.core.executor_bed import MIB, ExecutorBed, executor, profile

SLOT_S = 3.0


def lumos_run(run: int, seconds: int) -> LumosRun:
    """A run of so many seconds that uses the same in each."""
    sample = {
        "cpu_cores": 1.0, "memory_bytes": 1e9, "disk_read_bytes_per_s": 1e6, "disk_write_bytes_per_s": 0.0,
        "network_receive_bytes_per_s": 0.0, "network_send_bytes_per_s": 1e6,
    }  # fmt: skip
    samples = tuple(LumosSample(t_s=float(second), **sample) for second in range(seconds))
    return LumosRun(workload="short", run=run, interval_s=1.0, samples=samples)


def test_a_second_more_than_a_slot_is_a_second_more() -> None:
    found = measure([lumos_run(1, 4), lumos_run(2, 4), lumos_run(3, 3)], SLOT_S)
    assert found["short"].length == pytest.approx(1 / 3)  # 4 s were expected and 3 s came: not twice as long
    assert found["short"].total == pytest.approx(dict.fromkeys(("cpu", "disk", "network", "memory"), 1 / 3))


def recorded(seconds: float) -> list[api.ExecutorUse]:
    """Return an agent's report of an executor that holds 100 MiB for so many seconds."""
    surrogate = MonitorSurrogate(SLOT_S)
    surrogate.last_parts_read = True
    surrogate.began("c", "j", "e0", 0.0)
    for half in range(1, round(2 * seconds) + 1):
        use = ContainerUse(cpu_cores=1.0, memory_bytes=100 * MIB, cpu_seconds=half / 2)
        surrogate.sampled(Snapshot(half / 2, 0.5, containers={"c": use}))
    surrogate.ended("c", seconds, seconds)
    return surrogate.report(lambda container: (0.0, False), 1_000_000)


def test_a_run_of_one_slot_and_a_half_holds_its_memory_for_that_long() -> None:
    bed = ExecutorBed("a", forecasts={"u/app": profile((1, 100))})
    bed.executors(executor("e0"))
    bed.round()
    bed.uses("a", *recorded(4.5))
    bed.serve(e.Received("a", api.CommandEnded(job="j", task="e0", origin="a", ended=EXIT)))
    (stored,) = bed.stored
    memory_byte_s = stored.usage.total[3] * stored.slot_s
    assert memory_byte_s == pytest.approx(100 * MIB * 4.5)  # 600 MiB·s are 33 % too much
