"""Try Elasecutor's worked examples (§I, §III.B) with the master's own arithmetic and policies."""

from __future__ import annotations

import numpy as np

from master.placement.drr import Floats, drr, remaining_with
from master.placement.executors import Demands, WaitingExecutors
from master.placement.minfrag import MinFrag
from research.papers.claims import Inputs, Row
from research.papers.runs import runs_of
from simulator.executors.machines import PlannedMachines


def remaining(available: Floats, capacity: Floats, horizon: int) -> Floats:
    """Return R(*, j, t) / C(*, j, t): the rest of each resource up to ``horizon``, as a fraction of its capacity."""
    fractions: Floats = available[:, :horizon].sum(axis=1) / (capacity * horizon)
    return fractions


def figure_1(_inputs: Inputs) -> list[Row]:
    makespan_s = {run.settings["policy.name"]: run.report.makespan_s for run in runs_of("elasecutor/fig01")}
    saved = 1 - makespan_s["minfrag"] / makespan_s["static"]
    return [
        _exact(
            what="makespan with elastic allocation below that with static allocation",
            paper="50 %",
            ours=f"{saved * 100:.1f} % ({makespan_s['static']:g} → {makespan_s['minfrag']:g} slots)",
            holds=saved == 0.5,
        )
    ]


def figure_5(_inputs: Inputs) -> list[Row]:
    """Try Fig. 5: three executors, ending at t1 < t2 < t3, on 8 cores and 6 units of memory; t1 is two slots away."""
    machines = PlannedMachines(["machine 1"], np.array([[8.0, 6.0]]), slots=6)
    for executor, cpu, memory in (
        (1, [1, 3], [2, 1]),
        (2, [2, 2, 6, 6], [2, 2, 1, 1]),
        (3, [2] * 6, [1, 2, 3, 3, 6, 6]),
    ):
        machines.launch(0, executor, np.array([cpu, memory], dtype=float))
    fractions = remaining(machines.available(0), machines.capacity[0], machines.first_end(0))
    found = float(drr(fractions))
    return [
        _exact(
            what="DRR of machine 1 (CPU 1/4, memory 1/6 remain up to t1)",
            paper="1/4",
            ours=f"{found:g} (CPU {fractions[0]:.4f}, memory {fractions[1]:.4f})",
            holds=abs(found - 0.25) < 1e-12,
        )
    ]


def figure_6(_inputs: Inputs) -> list[Row]:
    """Try Fig. 6, with series of eight slots up to T that have the paper's integrals; cores, MB/s, Gbps, GB."""
    machines = PlannedMachines(["machine j"], np.array([[16.0, 500.0, 10.0, 64.0]]), slots=9)
    free = np.repeat([[10.0], [150.0], [2.0], [40.0]], 8, axis=1)
    machines.launch(0, "running", machines.capacity[0][:, None] - free)
    pending = WaitingExecutors(Demands(9))
    first = [[3] * 3 + [2] * 4, [50] * 3 + [75] * 4, [1] * 3 + [2] * 4, [15] * 5 + [20] * 2]
    second = [[4] * 4 + [3] * 5, [150] * 4 + [100] * 5, [2] * 2 + [1] * 2 + [0.5] * 5, [18] * 6 + [20] * 3]
    for executor, demand in enumerate((first, second), start=1):
        pending.add(executor, pending.demands.add(np.array(demand, dtype=float)))
    demands, every = pending.demands, np.array([0, 1])
    fractions, horizon = remaining_with(
        machines.available(0), machines.capacity[0], machines.first_end(0), demands.cumulative, demands.lengths, every
    )
    theta = drr(fractions)
    launched = [launch.executor for launch in MinFrag().heartbeat(machines, 0, pending)]
    paper = (53 / 112, 13 / 32)
    exact = bool(np.allclose(theta, paper)) and horizon.tolist() == [7, 8] and launched == [2]
    return [
        _exact(
            what="θ(1, j) at 0.875 T, θ(2, j) at T, and the scheduled executor",
            paper="53/112 = 0.473, 13/32 = 0.406; executor 2, after which no network is left",
            ours=f"{theta[0]:.3f} at {horizon[0] / 8:g} T, {theta[1]:.3f} at {horizon[1] / 8:g} T; executor {launched}",
            holds=exact,
        )
    ]


def _exact(*, what: str, paper: str, ours: str, holds: bool) -> Row:
    why = "" if holds else "The arithmetic is exact: it has changed."
    return Row(what=what, paper=paper, ours=ours, holds=holds, why=why)
