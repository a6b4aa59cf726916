"""A core that has become idle is used at once, whatever EPT is (Ursa §4.2.2: then APT_cpu = 0)."""

from __future__ import annotations

import pytest

from master.core import MasterSettings
from penstock.model import Capacity, ResourceKind
from simulator.tasks.cluster import SimulatedCluster
from simulator.tasks.node_spec import NodeSpec
from simulator.tasks.workload import SimulatedJob, SimulatedMonotask, SimulatedStage, SimulatedTask

MB = 10**6
CPU = ResourceKind.CPU


@pytest.mark.parametrize("ept_s", [1.0, 20.0])
def test_short_tasks_pass_by_a_long_one(ept_s: float) -> None:
    """A minute of work on one core holds APT above EPT; the other core must take the short tasks one after the other,
    each with a round and the reports between, and not one in an EPT."""
    long = SimulatedTask("long", (SimulatedMonotask(CPU, 3000 * MB),), 0)
    short = tuple(SimulatedTask(f"t{n}", (SimulatedMonotask(CPU, 10 * MB),), 0) for n in range(60))
    first = SimulatedJob("first", 0.0, (SimulatedStage("s", (long,)),))
    then = SimulatedJob("then", 1.0, (SimulatedStage("s", short),))
    cluster = SimulatedCluster(
        [NodeSpec(Capacity(cores=2.0, memory_bytes=2**30))],
        MasterSettings(ept_s=ept_s, default_cpu_bytes_per_s=50e6),
    )
    cluster.run([first, then])
    ended_at_s = cluster.frameworks[1].ended_at_s
    assert ended_at_s is not None
    assert ended_at_s < 1.0 + 60 * (0.2 + 0.3)
