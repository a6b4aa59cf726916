"""Promised cores and CPU slots are one account: a promised command takes no longer beside monotasks than alone."""

from __future__ import annotations

import pytest

from master.core import MasterSettings
from penstock.model import Capacity, ResourceKind
from simulator.tasks.cluster import SimulatedCluster
from simulator.tasks.node_spec import NodeSpec
from simulator.tasks.workload import (
    Phase,
    SimulatedCommand,
    SimulatedJob,
    SimulatedMonotask,
    SimulatedStage,
    SimulatedTask,
)

CORES = 4
CORE_BYTES_PER_S = 50e6
MONOTASKS = 60
#: A round (0.1 s) and three messages precede a command that finds an empty node.
ALONE_S = 20.1
#: Two messages between agent and master.
MESSAGES_S = 0.002


def command(cpu_cores: float, uses_cores: float, submitted_at_s: float = 0.0) -> SimulatedJob:
    """A job of one command that wants ``uses_cores`` for 20 s of its own time."""
    phases = (Phase(20.0, cpu_cores=uses_cores),)
    task = SimulatedTask("c", (), 0, SimulatedCommand(phases, cpu_cores))
    return SimulatedJob("command", submitted_at_s, (SimulatedStage("s", (task,)),))


def monotasks(seconds: float = 2.0, submitted_at_s: float = 1.0) -> SimulatedJob:
    """A job of 60 CPU monotasks, each ``seconds`` of a core's work."""
    size = round(seconds * CORE_BYTES_PER_S)
    tasks = tuple(SimulatedTask(f"t{n}", (SimulatedMonotask(ResourceKind.CPU, size),)) for n in range(MONOTASKS))
    return SimulatedJob("monotasks", submitted_at_s, (SimulatedStage("s", tasks),))


def responses_s(*jobs: SimulatedJob, from_its_start: bool = False) -> dict[str, float]:
    """Return how long each job takes on one node of four cores, from its submission or from its first placement."""
    cluster = SimulatedCluster(
        [NodeSpec(Capacity(cores=CORES, memory_bytes=2**30), CORE_BYTES_PER_S)],
        MasterSettings(default_cpu_bytes_per_s=CORE_BYTES_PER_S),
    )
    cluster.run(sorted(jobs, key=lambda job: job.submitted_at_s))
    found: dict[str, float] = {}
    for framework in cluster.frameworks:
        assert framework.ended_at_s is not None
        began_s = framework.started_at_s if from_its_start else framework.job.submitted_at_s
        assert began_s is not None
        found[framework.job.name] = framework.ended_at_s - began_s
    return found


@pytest.mark.parametrize(("cpu_cores", "uses_cores"), [(4.0, 4.0), (2.0, 2.0), (1.0, 1.0), (0.5, 0.5)])
def test_a_promised_command_takes_no_longer_beside_monotasks_than_alone(cpu_cores: float, uses_cores: float) -> None:
    alone_s = responses_s(command(cpu_cores, uses_cores))["command"]
    assert alone_s == pytest.approx(ALONE_S, abs=0.05)
    assert responses_s(command(cpu_cores, uses_cores), monotasks())["command"] <= 1.02 * alone_s


@pytest.mark.parametrize("seconds", [2.0, 10.0])
def test_a_command_has_its_promise_from_its_placement_on_though_monotasks_run(seconds: float) -> None:
    """Those that hold slots when it comes go on with the fiftieth part of the cores that promises leave to others. The
    time begins when the node has accepted it.
    """
    jobs = monotasks(seconds, submitted_at_s=0.0), command(4.0, 4.0, submitted_at_s=1.0)
    assert responses_s(*jobs, from_its_start=True)["command"] <= (1.02 + 1e-6) * 20.0 + MESSAGES_S


def test_monotasks_get_the_promised_cores_that_a_command_does_not_use() -> None:
    """Four cores do 140 core-seconds in 35 s. Nothing is lent before two samples have seen the command."""
    took_s = responses_s(command(4.0, 1.0), monotasks())
    assert took_s["command"] <= 1.02 * ALONE_S
    assert took_s["monotasks"] <= 38.5


def test_no_core_is_idle_beside_a_promised_command_that_uses_them_all() -> None:
    """200 core-seconds on four cores."""
    took_s = responses_s(command(4.0, 4.0, submitted_at_s=0.0), monotasks(submitted_at_s=0.0))
    assert took_s["monotasks"] <= 1.05 * 50
