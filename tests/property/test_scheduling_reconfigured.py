"""The scheduling core keeps its promises with any settings while it runs; heartbeats and executors' slots, which agents
and forecasts rely on, stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from master.core import events as e
from master.ordering import NAMES
from tests.property.scheduling_agents import MIB
from tests.property.test_scheduling_cluster import World

LIVE: dict[str, st.SearchStrategy[Any]] = {
    "interval_s": st.sampled_from([0.05, 0.5]),
    "ept_s": st.sampled_from([0.5, 1.0, 30.0]),
    "ordering": st.sampled_from(NAMES),
    "ejf_weight": st.sampled_from([0.0, 1.0]),
    "las_quantum_s": st.sampled_from([0.1, 10.0]),
    "las_mq_queues": st.integers(1, 4),
    "las_mq_stage_aware": st.booleans(),
    "las_mq_inside": st.sampled_from(["fifo", "demand"]),
    "weights": st.dictionaries(st.sampled_from(["u", "v"]), st.sampled_from([0.5, 2.0])),
    "tenants": st.dictionaries(st.sampled_from(["u", "v"]), st.sampled_from(["a", "a/b"])),
    "share_chunk_tasks": st.integers(1, 5),
    "placement": st.sampled_from(["ursa", "tetris", "tetris2", "capacity"]),
    "stage_aware": st.booleans(),
    "network_aware": st.booleans(),
    "memory_estimate": st.booleans(),
    "promotion": st.booleans(),
    "preemption_backoff_s": st.sampled_from([0.0, 0.1, 10.0]),
    "user_max_jobs": st.sampled_from([0, 1, 3]),
    "user_max_cores": st.sampled_from([0.0, 1.0, 2.5]),
    "user_max_memory_bytes": st.sampled_from([0, 300 * MIB, 600 * MIB]),
    "default_cpu_bytes_per_s": st.sampled_from([1e6, 50e6]),
}


class ReconfiguredWorld(World):
    """The same world; now and then its operator has other ideas."""

    @rule(data=st.data(), keys=st.sets(st.sampled_from(sorted(LIVE)), max_size=4))
    def reconfigure(self, data: st.DataObject, keys: set[str]) -> None:
        before = self.cluster.settings
        fresh = replace(before, **{key: data.draw(LIVE[key], key) for key in sorted(keys)})
        self.serve(e.Reconfigured(replace(fresh, heartbeat_s=99.0, executor_slot_s=99.0, executor_placement="trc")))
        assert self.cluster.settings == fresh


TestSchedulingReconfigured = ReconfiguredWorld.TestCase
TestSchedulingReconfigured.settings = settings(
    max_examples=25, stateful_step_count=50, suppress_health_check=list(HealthCheck)
)
