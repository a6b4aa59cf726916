"""The node's promises hold through all changes of its settings; in a dry run no container is frozen."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from agent.core import events as e
from agent.core.records import ContainerState
from agent.core.settings import PreemptionSettings, Thresholds, TuningSettings, VictimOrder
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from penstock.model import Capacity, ContainerSpec
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch
from penstock.wire.errors import RpcError
from tests.property.test_node import NodeMachine

FRACTIONS = st.sampled_from([0.0, 0.05, 0.5, 0.9, 1.0])
SECONDS = st.sampled_from([0.0, 0.1, 5.0, 60.0])
SAMPLES = st.integers(0, 3)
PREEMPTION = st.builds(
    PreemptionSettings,
    thresholds=st.builds(Thresholds, FRACTIONS, FRACTIONS, FRACTIONS, FRACTIONS),
    after=st.integers(1, 3), after_cpu=SAMPLES, after_disk=SAMPLES, after_network=SAMPLES,
    hysteresis=FRACTIONS, cooldown_s=SECONDS, order=st.sampled_from(list(VictimOrder)),
    starved_after_s=SECONDS, grace_max_s=SECONDS, dry_run=st.booleans(),
)  # fmt: skip
LIVE: dict[str, st.SearchStrategy[Any]] = {
    "disk_small_bytes": st.sampled_from([0, 10**6]),
    "lease_s": SECONDS,
    "lease_kept_s": SECONDS,
    "job_wait_max_s": st.sampled_from([0.1, 30.0]),
    "elastic_lead_s": SECONDS,
    "elastic_lag_s": SECONDS,
    "reprovision_rho": st.sampled_from([1.0, 1.1, 3.0]),
    "t_alloc": st.sampled_from([0.0, 0.1, 0.9, 2.0]),
    "t_alloc_tuning": st.sampled_from([None, TuningSettings(least=0.1, most=0.9, calm_s=1.0)]),
    "opportunistic_queue": st.integers(0, 3),
    "opportunistic_wait_s": st.sampled_from([0.1, 10.0]),
    "rejoin_s": SECONDS,
    "preemption": PREEMPTION,
}


class ReconfiguredMachine(NodeMachine):
    """The same node; now and then its operator has other ideas."""

    @rule(data=st.data(), keys=st.sets(st.sampled_from(sorted(LIVE))))
    def reconfigure(self, data: st.DataObject, keys: set[str]) -> None:
        before = self.node.settings
        fresh = replace(before, **{key: data.draw(LIVE[key], key) for key in sorted(keys)})
        elsewhere = replace(fresh, node="other", instance="y", capacity=Capacity(cores=64, memory_bytes=10**12))
        self.send(e.Reconfigured(elsewhere, self.now))
        assert self.node.settings == fresh, "properties of a node do not change while it runs"
        self.node.heartbeat(self.now)

    @rule(promised=st.booleans())
    def all_containers_want_the_processors(self, promised: bool) -> None:
        """Let opportunistic work take from promises: a container is paused, unless settings forbid it."""
        self.connect()
        for spec in (
            ContainerSpec(argv=("x",), opportunistic=True, detach=True),
            ContainerSpec(argv=("x",), cpu_cores=2.0 if promised else 0.5, detach=True),
        ):
            with contextlib.suppress(RpcError):
                self.send(e.Requested(m.LAUNCH, max(self.sessions), Launch(container=spec)))
        self.start_all()
        self.now += 1
        uses = {one: ContainerUse(cpu_cores=0.0 if one in self.frozen else 2.0) for one in sorted(self.processes)}
        self.send(e.Sampled(Snapshot(self.now, 1.0, HostUse(), uses), self.now))

    @precondition(lambda self: self.frozen)
    @rule(dry_run=st.booleans())
    def change_the_measures_while_a_container_is_paused(self, dry_run: bool) -> None:
        before = self.node.settings
        preemption = replace(before.preemption, dry_run=dry_run, after=1, cooldown_s=0.0)
        self.send(e.Reconfigured(replace(before, preemption=preemption), self.now))

    @invariant()
    def in_a_dry_run_no_container_is_frozen(self) -> None:
        if self.node.settings.preemption.dry_run:
            paused = [one for one in self.node.containers.live.values() if one.state is ContainerState.PAUSED]
            assert not paused, "it would never go on"

    @invariant()
    def t_alloc_is_the_setting_or_is_adapted(self) -> None:
        settings_now = self.node.settings
        assert self.node.slack.t_alloc == settings_now.t_alloc or settings_now.t_alloc_tuning is not None


TestNodeReconfigured = ReconfiguredMachine.TestCase
TestNodeReconfigured.settings = settings(
    max_examples=15, stateful_step_count=50, suppress_health_check=list(HealthCheck)
)
