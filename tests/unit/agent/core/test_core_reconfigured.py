"""Other settings while the node runs: the changes of UBIS's knobs that take effect, when, and the values that are
kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerState
from agent.core.settings import PreemptionSettings, Thresholds, TuningSettings
from agent.core.snapshot import ContainerUse
from penstock.model import Capacity, Notice
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import ContainerRef
from penstock.wire.errors import RpcError
from tests.fakes.node_bed import NodeBed

FREEZES = Thresholds(cpu=0.95)


class Bed(NodeBed):
    """A node whose clock ticks once with each sample."""

    def __init__(self, **settings: Any) -> None:
        preemption = PreemptionSettings(FREEZES, after=2, cooldown_s=0.0)
        super().__init__(cores=2, memory_bytes=1000, **{"preemption": preemption, **settings})
        self.open()

    def change(self, **settings: Any) -> None:
        self.send(e.Reconfigured(replace(self.node.settings, **settings), self.now))

    def preempt(self, **settings: Any) -> None:
        self.change(preemption=replace(self.node.settings.preemption, **settings))

    def run(self, *, opportunistic: bool = True, notice: Notice | None = None) -> str:
        cores, memory = (0.0, 0) if opportunistic else (1.8, 900)
        container = self.launch(
            opportunistic=opportunistic, notice=notice, detach=True, cpu_cores=cores, memory_bytes=memory
        )
        self.begin(container)
        return container

    def sample(self, cores: dict[str, float], memory: int = 10) -> None:
        self.now += 1
        self.sampled({name: ContainerUse(cpu_cores=use, memory_bytes=memory) for name, use in cores.items()})

    def state(self, container: str) -> ContainerState:
        return self.node.containers.live[container].state


def contended(bed: Bed) -> tuple[str, str]:
    """A regular container and one on slack that together want more than there is."""
    slack = bed.run()
    return bed.run(opportunistic=False), slack


def paused(**settings: Any) -> tuple[Bed, str, str]:
    """The same, and the one on slack is paused for the CPU at the first sample."""
    bed = Bed(preemption=PreemptionSettings(FREEZES, after=1, cooldown_s=0.0), **settings)
    regular, slack = contended(bed)
    bed.sample({regular: 1.5, slack: 0.5})
    assert bed.state(slack) is ContainerState.PAUSED
    return bed, regular, slack


def warned() -> tuple[Bed, str]:
    """A container on slack that was given notice."""
    bed = Bed()
    slack = bed.run(notice=Notice(signal=15, grace_s=2.0))
    bed.run(opportunistic=False)
    bed.sample({slack: 0.1}, memory=950)
    assert bed.state(slack) is ContainerState.WARNED
    return bed, slack


def test_t_alloc_holds_for_the_next_and_the_master_gets_it() -> None:
    bed = Bed()
    running = bed.run()
    assert bed.node.load(bed.now).t_alloc is None, "it is as it was registered"
    bed.change(t_alloc=0.0)
    assert bed.node.load(bed.now).t_alloc == 0.0
    with pytest.raises(RpcError, match="T_alloc is 0 here: nothing runs on slack"):
        bed.run()
    assert bed.state(running) is ContainerState.RUNNING, "a running container goes on"
    bed.change(t_alloc=0.9)
    assert bed.node.load(bed.now).t_alloc == 0.9, "the master has another one by now"
    bed.run()


def test_work_that_waits_for_slack_starts_when_t_alloc_rises() -> None:
    bed = Bed(t_alloc=0.5, opportunistic_queue=2)
    bed.command("t", memory_bytes=600, opportunistic=True)
    assert list(bed.node.held.waiting) == [(bed.JOB, "t")]
    bed.done.clear()
    bed.change(t_alloc=0.9)
    assert not bed.node.held.waiting and any(isinstance(one, i.StartContainer) for one in bed.done)


def test_no_more_commands_are_asked_to_wait_where_nothing_runs_on_slack() -> None:
    bed = Bed(opportunistic_queue=2)
    assert bed.node.load(0.0).opportunistic_queue_free == 2
    bed.change(t_alloc=0.0)
    assert bed.node.load(0.0).opportunistic_queue_free == 0


def test_each_resource_has_its_own_patience() -> None:
    bed = Bed(preemption=PreemptionSettings(FREEZES, after=3, cooldown_s=0.0))
    regular, slack = contended(bed)
    bed.preempt(after_cpu=1)
    bed.sample({regular: 1.5, slack: 0.5})
    assert bed.state(slack) is ContainerState.PAUSED


def test_by_default_nothing_is_paused_for_the_cpu() -> None:
    bed = Bed(preemption=PreemptionSettings(after=1, cooldown_s=0.0))
    regular, slack = contended(bed)
    bed.sample({regular: 1.5, slack: 0.5})
    assert bed.state(slack) is ContainerState.RUNNING


def test_a_lower_t_preempt_holds_with_the_next_sample() -> None:
    bed = Bed(preemption=PreemptionSettings(FREEZES, after=1, cooldown_s=0.0))
    regular, slack = contended(bed)
    bed.sample({regular: 0.5, slack: 0.5})
    assert bed.state(slack) is ContainerState.RUNNING
    bed.preempt(thresholds=Thresholds(cpu=0.4))
    bed.sample({regular: 0.5, slack: 0.5})
    assert bed.state(slack) is ContainerState.PAUSED


def test_preemptions_of_before_do_not_lower_t_alloc_when_it_begins_to_be_tuned() -> None:
    bed, regular, slack = paused(t_alloc=0.9)
    bed.change(t_alloc_tuning=TuningSettings(least=0.4, most=0.9, step=0.05, back_off=0.8, calm_s=10.0, margin=0.05))
    bed.sample({regular: 1.5, slack: 0.0})
    assert bed.node.load(bed.now).t_alloc == 0.9


def test_a_paused_container_goes_on_when_a_dry_run_begins() -> None:
    bed, regular, slack = paused()
    bed.done.clear()
    bed.preempt(dry_run=True)
    assert bed.state(slack) is ContainerState.RUNNING and i.Freeze(slack, frozen=False) in bed.done
    bed.sample({regular: 1.5, slack: 0.5})
    assert bed.state(slack) is ContainerState.RUNNING


def test_a_container_paused_for_the_cpu_goes_on_when_the_cpu_is_no_longer_watched() -> None:
    bed, _, slack = paused()
    bed.preempt(thresholds=Thresholds(cpu=0.99))
    assert bed.state(slack) is ContainerState.PAUSED
    bed.preempt(thresholds=Thresholds(cpu=1.0))
    assert bed.state(slack) is ContainerState.RUNNING


def test_a_container_that_got_its_notice_is_ended_though_a_dry_run_has_begun() -> None:
    bed, slack = warned()
    bed.preempt(dry_run=True)
    bed.now += 2
    bed.send(e.Woken(bed.now))
    assert bed.state(slack) is ContainerState.STOPPING


def test_a_container_cancelled_in_its_grace_period_was_not_preempted() -> None:
    bed, slack = warned()
    bed.send(e.Requested(m.KILL, 1, ContainerRef(container=slack)))
    bed.now += 2
    bed.send(e.Woken(bed.now))
    bed.exit(slack)
    actions = bed.node.preemption
    assert [one.action for one in actions.preempted] == ["warned"]
    assert actions.acts["preempted", "memory"] == 0 == sum(actions.latency.counts)


def test_leases_have_their_present_length() -> None:
    bed = Bed(lease_s=0.005)
    job = bed.register()
    bed.submit(1, job, 1)
    bed.change(lease_s=0.0)
    bed.submit(1, job, 2)
    assert [(one.grants.ids, one.grants.lease_s) for one in bed.given(i.Grant)] == [([1], 0.005), ([2], 0.0)]


def test_preemptions_are_remembered_up_to_the_number_of_none() -> None:
    bed, *_ = paused(keep_ended=0)
    assert bed.node.preemption.preempted == []


def test_properties_of_a_node_do_not_change() -> None:
    bed = Bed()
    bed.change(capacity=Capacity(cores=64, memory_bytes=10**9), node="other", has_master=False, lease_s=0.1)
    assert bed.node.settings == replace(bed.settings, lease_s=0.1)
