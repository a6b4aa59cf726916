"""UBIS's claims: the example of Fig. 3, sensitivity to thresholds, the 20-node cluster, and robustness (§IV.D, §V)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from research.papers.claims import Claim, Inputs, Row
from research.papers.rows import percent, row
from research.papers.runs import runs_of
from simulator.report import Report

_GB = 1e9
#: §V.C: 19 workers of 56 virtual cores.
_CORES = 19 * 56
#: Table I: job → the GB to which a task's memory grows; each task asks for 2 GB.
_SLEEPS = {"Sleep": 0.2, "G-Sleep-50": 1.0, "G-Sleep-75": 1.5, "G-Sleep": 1.98}
_T_ALLOC = (0.5, 0.6, 0.7, 0.8, 0.9)
_T_PREEMPT = (0.8, 0.85, 0.9, 0.95)
_GROWS_TO = "jobs.0.stages.0.command.phases.1.memory_bytes"
_AT_ONCE = {"policy.preemption_backoff_s": 0.0}
_MEMORY_THRESHOLD = "agent.preemption.thresholds.memory"

_ASSUMED = "The possible gain depends on the unused part of a task's promise, which is assumed."


def _fig3(_inputs: Inputs) -> list[Row]:
    t_s = 60.0
    rows = []
    for what, paper, allowed in (("without", 4.0, False), ("with", 3.5, True)):
        ours = _report("ubis/fig3", {"opportunistic": allowed}).makespan_s / t_s
        rows.append(
            row(
                what=f"completion {what} opportunistic containers (± 0.1 t)",
                paper=f"{paper:g} t",
                ours=f"{ours:.2f} t",
                holds=abs(ours - paper) <= 0.1,
                why="With t = 60 s a sample and a heartbeat count for 0.03 t.",
            )
        )
    return rows


def _report(scenario: str, settings: dict[str, Any]) -> Report:
    (run,) = runs_of(scenario, settings)
    return run.report


def _sleep(name: str, key: str, values: Sequence[float], *, backs_off: bool = False) -> list[Report]:
    """Return one report per value. As in the paper, preempted work is placed again at once, unless it ``backs_off``."""
    fixed = {_GROWS_TO: _SLEEPS[name] * _GB} | ({} if backs_off else _AT_ONCE)
    return [_report("ubis/sensitivity", fixed | {key: value}) for value in values]


def _preempted(report: Report) -> float:
    """Return preempted ÷ started containers."""
    return report.preemptions / report.measures["containers"]


def _share(report: Report) -> float:
    return report.opportunistic_share or 0.0


def _fig4(_inputs: Inputs) -> list[Row]:
    reports = {name: _sleep(name, "agent.t_alloc", _T_ALLOC) for name in _SLEEPS}
    shares = {name: [_share(report) for report in of] for name, of in reports.items()}
    taken = {name: [_preempted(report) for report in of] for name, of in reports.items()}
    low, high = ([of[index] for of in shares.values()] for index in (0, -1))
    growth = {name: of[-1] - of[0] for name, of in taken.items()}
    names = list(_SLEEPS)
    unlike = (
        "YARN spreads the starts that have room over several heartbeats of the node and the master, here all of them "
        "start at once"
    )
    return [
        row(
            what="opportunistic share at T_alloc = 0.5, least to most (4a; ± 5 % of the containers)",
            paper="30 – 40 %",
            ours=_range(low),
            holds=min(low) >= 0.25 and max(low) <= 0.45,
            why=f"The paper names no other bound: {unlike}, so slack is filled sooner and completely.",
        ),
        row(
            what="opportunistic share at T_alloc = 0.9, least to most (4a; ± 5 %)",
            paper="48 – 60 %",
            ours=_range(high),
            holds=min(high) >= 0.43 and max(high) <= 0.65,
            why=f"The paper names no other bound: {unlike}, so slack is filled sooner and completely.",
        ),
        row(
            what="the share grows with T_alloc, for every job that has more to gain (4a)",
            paper="yes",
            ours=_each(shares),
            holds=all(of[-1] >= of[0] - 0.02 for of in shares.values()) and max(high) >= max(low),
            why="Each value is one run; differences of a few containers depend on the timing of starts and samples.",
        ),
        row(
            what="jobs with lower utilization have the higher share, at each T_alloc (4a)",
            paper="yes",
            ours=" > ".join(f"{name} {percent(shares[name][0])}" for name in names) + " at 0.5",
            holds=all(
                shares[one][i] >= shares[other][i] - 0.01
                for one, other in pairwise(names)
                for i in range(len(_T_ALLOC))
            ),
            why="Preempted containers are started again and count again, so many preemptions raise the share, too.",
        ),
        row(
            what="preempted containers: most for G-Sleep, none for Sleep (4b)",
            paper="yes",
            ours=", ".join(f"{name} {percent(taken[name][-1])}" for name in names) + " at 0.9",
            holds=not any(taken["Sleep"]) and all(taken["G-Sleep"][i] >= taken["G-Sleep-50"][i] for i in range(5)),
            why="Slack cannot foresee growing memory.",
        ),
        row(
            what="increase of the preempted share from T_alloc 0.5 to 0.9 (4b)",
            paper="less than 10 % of the containers",
            ours=_range(list(growth.values())),
            holds=max(growth.values()) < 0.1,
            why="A preempted container is placed again as soon as its memory is free, on the same node (there is but "
            "one), and grows again: with a higher T_alloc this turns faster.",
        ),
        _backed_off(reports),
    ]


def _backed_off(at_once: dict[str, list[Report]]) -> Row:
    """Return a row beyond the paper: preempted work and its node back off, as by default in the master."""
    name = "G-Sleep"
    before, after = at_once[name], _sleep(name, "agent.t_alloc", _T_ALLOC, backs_off=True)
    kills = [(one.preemptions, other.preemptions) for one, other in zip(before, after, strict=True)]
    longer = max(other.makespan_s / one.makespan_s for one, other in zip(before, after, strict=True)) - 1
    return row(
        what=f"beyond the paper, {name} that backs off: containers preempted by T_alloc; makespan (at most +2 % holds)",
        paper="",
        ours=", ".join(f"{t}: {a} → {b}" for t, (a, b) in zip(_T_ALLOC, kills, strict=True)) + f"; +{percent(longer)}",
        holds=all(b <= a for a, b in kills) and longer <= 0.02,
        why="",
    )


def _fig5(_inputs: Inputs) -> list[Row]:
    rows = []
    for name in list(_SLEEPS)[1:]:
        taken = [_preempted(report) for report in _sleep(name, _MEMORY_THRESHOLD, _T_PREEMPT)]
        rows.append(
            row(
                what=f"{name}: preempted containers as T_preempt grows from {_T_PREEMPT[0]} to {_T_PREEMPT[-1]}",
                paper="fewer",
                ours=" → ".join(percent(one) for one in taken),
                holds=taken[-1] < taken[0],
                why="Containers whose memory grows to their promise are preempted at any threshold.",
            )
        )
    return rows


def _makespans(_inputs: Inputs) -> list[Row]:
    """Try Fig. 6 and 7: the sweep of T_alloc against the base."""
    base = _report("ubis/deployment", {"opportunistic": False})
    values = (0.5, 0.7, 0.8, 0.9, 0.95)
    swept = [_report("ubis/deployment", {"agent.t_alloc": value}) for value in values]
    gain = [1 - report.makespan_s / base.makespan_s for report in swept]
    mean = [1 - report.mean_response_s / base.mean_response_s for report in swept]
    times = [report.measures["container_s"] / base.measures["container_s"] - 1 for report in swept]
    best = max(range(len(values)), key=gain.__getitem__)
    curve = ", ".join(f"{t_alloc}: {percent(one)}" for t_alloc, one in zip(values, gain, strict=True))
    return [
        row(
            what="improvement of the makespan by T_alloc",
            paper="grows from 0.5 to 0.9, peak 30 %",
            ours=curve,
            holds=0 < gain[0] < gain[3] and gain[best] > 0.1,
            why=f"{_ASSUMED} Here a container uses {_cores_of_a_container(base):.2f} of the core that it asks for on "
            "average, so that T_alloc = 0.5 leaves no slack while all cores are promised.",
        ),
        row(
            what="T_alloc with the shortest makespan",
            paper="0.9; slightly less at 0.95",
            ours=f"{values[best]:g}",
            holds=values[best] == 0.9,
            why="The dip in the paper comes from contention for disks and from preemptions; here the disks are shared "
            "fairly and lose nothing by seeking.",
        ),
        row(
            what="improvement of the jobs' durations at its best (more than 10 % holds)",
            paper="25 %",
            ours=percent(max(mean)),
            holds=max(mean) > 0.1,
            why=_ASSUMED,
        ),
        row(
            what="time in containers against the base, from T_alloc 0.5 to 0.95 (Fig. 7)",
            paper="grows steadily",
            ours=" → ".join(percent(one) for one in times),
            holds=times[-1] > times[0],
            why="Nothing contends: neither CPU nor disks are full.",
        ),
    ]


def _cores_of_a_container(report: Report) -> float:
    return report.resources["cpu"].utilization * _CORES * report.makespan_s / report.measures["container_s"]


def _robustness(_inputs: Inputs) -> list[Row]:
    """Try Fig. 9: no loss if there is nothing to gain, and a small job beside a large one."""
    base = _report("ubis/robustness", {"opportunistic": False})
    mean_cpu = base.resources["cpu"].utilization
    full = _report("ubis/robustness", {"agent.t_alloc": round(mean_cpu, 3)})
    slack = _report("ubis/robustness", {"agent.t_alloc": 0.8})
    beside = _report("ubis/robustness", {"agent.t_alloc": 0.8, "jobs.1.count": 1})

    def speedup(report: Report) -> float:
        return 1 - report.jobs[0].response_s / base.jobs[0].response_s

    return [
        row(
            what="mean CPU usage of the base",
            paper="16.38 %",
            ours=percent(mean_cpu),
            holds=abs(mean_cpu - 0.1638) < 0.05,
            why="The phases of the tasks are assumed so that this figure is close.",
        ),
        row(
            what="T_alloc at the mean utilization: opportunistic share, and the job's speedup (under 5 % each holds)",
            paper="none; 1.22 %",
            ours=f"{percent(_share(full))}; {percent(speedup(full))}",
            holds=_share(full) < 0.05 and abs(speedup(full)) < 0.05,
            why="While its tasks start the nodes use less than the mean, so some find slack.",
        ),
        row(
            what="T_alloc = 0.8: opportunistic share, and the job's speedup (more than 5 % each holds)",
            paper="25 %; 15.28 %",
            ours=f"{percent(_share(slack))}; {percent(speedup(slack))}",
            holds=_share(slack) > 0.05 and speedup(slack) > 0.05,
            why=_ASSUMED,
        ),
        row(
            what="the same beside a small Wordcount: the large job's speedup (more than 5 % holds)",
            paper="10.8 %",
            ours=percent(speedup(beside)),
            holds=speedup(beside) > 0.05,
            why="The small job takes containers from the large one while it runs.",
        ),
    ]


def _range(fractions: list[float]) -> str:
    return f"{percent(min(fractions))} – {percent(max(fractions))}"


def _each(series: dict[str, list[float]]) -> str:
    return "; ".join(f"{name} {percent(of[0])} → {percent(of[-1])}" for name, of in series.items())


CLAIMS: list[Claim] = [
    Claim(name="ubis/fig3", where="UBIS §IV.D, Fig. 3", run=_fig3),
    Claim(name="ubis/fig4", where="UBIS §V.B, Fig. 4", run=_fig4),
    Claim(name="ubis/fig5", where="UBIS §V.B, Fig. 5", run=_fig5),
    Claim(name="ubis/makespan", where="UBIS §V.C.1, Fig. 6 and 7", run=_makespans),
    Claim(name="ubis/robustness", where="UBIS §V.C.2, Fig. 9", run=_robustness),
]
