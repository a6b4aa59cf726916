"""Compare the papers' mechanisms together with each paper's alone, on each paper's workload.

No paper has such figures: a line holds if all mechanisms together are no worse than the best paper alone. The order of
jobs is the better of two: LAS_MQ, which knows nothing about jobs, and SRJF, which knows their remaining work. Further
lines have the default order, and ask for a tenth less than the best paper alone, Ursa with SRJF included. Where they do
not hold they tell what no order can go below, and what SRJF attains that is told the length of every task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from research.papers.bounds import Bounds, bounds_of
from research.papers.claims import Claim, Inputs, Row
from research.papers.rows import change
from research.papers.runs import runs_of_each
from research.papers.scenarios import scenario_file
from simulator.report import Report
from simulator.scenario import load
from simulator.tasks import Spec

#: "No worse" means within this fraction of the best alone.
_NO_WORSE = 0.02
_LAS_MQ, _SRJF = "with LAS_MQ", "with SRJF"
_INSTALLED = "as installed"
_URSA_SRJF = "Ursa (SRJF)"
_KNOWN = "with SRJF and known lengths"
_TOGETHER = (_LAS_MQ, _SRJF, _INSTALLED, _KNOWN)
#: The aimed gain of the default order over the best paper alone.
_GAIN = 0.1
_YARN = {"policy.placement": "capacity"}
_NO_SLACK = {"opportunistic": False}
#: UBIS's own (§V.C). It preempts for CPU and memory only; by default nothing is frozen for the CPU.
_UBIS_THRESHOLDS = {
    "agent.preemption.thresholds.cpu": 0.99,
    "agent.preemption.thresholds.memory": 0.95,
    "agent.preemption.thresholds.disk": 1.0,
}
#: For workloads where no task may run on slack. Placement is Ursa's unless a setting changes it: LAS_MQ and UBIS are
#: built on YARN, so each of them alone has YARN's placement.
_MONOTASKS: dict[str, dict[str, Any]] = {
    _LAS_MQ: {"policy.ordering": "las_mq"},
    _SRJF: {"policy.ordering": "srjf"},
    _INSTALLED: {"policy.ordering": "gittins", "agent.ranked": True},
    "Ursa (EJF)": {"policy.ordering": "ejf"},
    _URSA_SRJF: {"policy.ordering": "srjf"},
    "LAS_MQ": _YARN | {"policy.ordering": "las_mq"},
}
_COMMANDS: dict[str, dict[str, Any]] = {
    _LAS_MQ: {"policy.ordering": "las_mq"},
    _SRJF: {"policy.ordering": "srjf"},
    _INSTALLED: {"policy.ordering": "gittins", "agent.ranked": True},
    _KNOWN: {"policy.ordering": "srjf", "known_lengths": True},
    "Ursa (EJF)": {"policy.ordering": "ejf"} | _NO_SLACK,
    _URSA_SRJF: {"policy.ordering": "srjf"} | _NO_SLACK,
    "LAS_MQ": _YARN | {"policy.ordering": "las_mq"} | _NO_SLACK,
    "UBIS": _YARN | {"policy.ordering": "fair"} | _UBIS_THRESHOLDS,
}

_LONG = (
    "Nearly all tasks run on slack, so placement makes no difference; an order by size makes long jobs wait "
    "for short ones, so long jobs run at the end, while under Fair they progress all the time."
)


def _dags(inputs: Inputs) -> list[Row]:
    file = {"tpch.file": str(inputs.trace("tpch_dags"))}
    return _rows(
        "together/dags",
        {name: file | settings for name, settings in _MONOTASKS.items()},
        "Ursa's order brings the mean down, or LAS_MQ's; here there is no slack to add.",
    )


def _testbed(_inputs: Inputs) -> list[Row]:
    return _rows(
        "las_mq/testbed-50s",
        _MONOTASKS,
        "Its tasks only compute, so placement has nothing to balance, and there is no slack: the order is all.",
    )


def _containers(_inputs: Inputs) -> list[Row]:
    return _rows("together/containers", _COMMANDS, _LONG)


def _executors(_inputs: Inputs) -> list[Row]:
    return _rows("together/executors", _COMMANDS, _LONG)


def _rows(scenario: str, settings: Mapping[str, Mapping[str, Any]], why: str) -> list[Row]:
    runs = runs_of_each(scenario, list(settings.values()))
    reports = {name: run.report for name, (run,) in zip(settings, runs, strict=True)}
    makespans_s = {name: report.makespan_s for name, report in reports.items()}
    responses_s = {name: report.mean_response_s for name, report in reports.items()}
    reported = {name: report for name, report in reports.items() if name not in (_INSTALLED, _URSA_SRJF, _KNOWN)}
    bounds = _bounds(scenario, settings[_INSTALLED])
    return [
        _row("makespan", makespans_s, why),
        _row("mean response", responses_s, why),
        _efficiency(reported, why),
        _gain("makespan", makespans_s, why, bounds.makespan_s, bounds.limit),
        _gain("mean response", responses_s, why, bounds.mean_response_s),
    ]


def _bounds(scenario: str, settings: Mapping[str, Any]) -> Bounds:
    (point,) = load(scenario_file(scenario), settings).points()
    assert isinstance(point.spec, Spec)
    return bounds_of(point.spec, point.seed)


def _row(what: str, times_s: Mapping[str, float], why: str) -> Row:
    alone = {name: time_s for name, time_s in times_s.items() if name not in (*_TOGETHER, _URSA_SRJF)}
    best = min(alone, key=alone.__getitem__)
    holds = min(times_s[_LAS_MQ], times_s[_SRJF]) <= (1 + _NO_WORSE) * alone[best]
    return Row(
        what=f"{what}: together at most 2 % above the best alone",
        paper=", ".join(f"{name} {time_s:.0f} s" for name, time_s in alone.items()),
        ours=f"{_LAS_MQ} {times_s[_LAS_MQ]:.0f} s, {_SRJF} {times_s[_SRJF]:.0f} s",
        holds=holds,
        why="" if holds else f"{best} alone is best. {why}",
    )


def _gain(what: str, times_s: Mapping[str, float], why: str, bound_s: float, limit: str = "") -> Row:
    """Return a row on the default order; no order takes less than ``bound_s``, because of ``limit``."""
    alone = {name: time_s for name, time_s in times_s.items() if name not in _TOGETHER}
    best = min(alone, key=alone.__getitem__)
    holds = times_s[_INSTALLED] / alone[best] - 1 <= -_GAIN
    least = f"No order takes less than {bound_s:.0f} s" + (f": {limit}." if limit else ".")
    if bound_s > (1 - _GAIN) * alone[best]:
        why = least
    else:
        known_s = times_s[_KNOWN if _KNOWN in times_s else _SRJF]
        known = f"Told the length of every task, SRJF takes {known_s:.0f} s ({change(known_s, alone[best])})."
        why = f"{why} {known} {least}"
    return Row(
        what=f"{what}: {_INSTALLED}, at least 10 % below the best alone",
        paper=f"{best} {alone[best]:.0f} s",
        ours=f"{times_s[_INSTALLED]:.0f} s ({change(times_s[_INSTALLED], alone[best])})",
        holds=holds,
        why="" if holds else why,
    )


def _efficiency(reports: Mapping[str, Report], why: str) -> Row:
    """Return a row on SE and UE of the CPU; their product is the utilization (Ursa §5)."""
    used = {name: report.resources["cpu"].utilization for name, report in reports.items()}
    best = max(used, key=used.__getitem__)
    holds = max(used[_LAS_MQ], used[_SRJF]) >= used[best] - _NO_WORSE
    said = {name: _said(report) for name, report in reports.items()}
    return Row(
        what="SE and UE of the CPU: their product, the utilization, at most 2 points below the best alone",
        paper="; ".join(f"{name} {text}" for name, text in said.items() if name not in (_LAS_MQ, _SRJF)),
        ours=f"{_LAS_MQ} {said[_LAS_MQ]}; {_SRJF} {said[_SRJF]}",
        holds=holds,
        why="" if holds else f"{best} alone is best. {why}",
    )


def _said(report: Report) -> str:
    cpu = report.resources["cpu"]
    se, ue = cpu.scheduling_efficiency or 0.0, cpu.utilization_efficiency or 0.0
    return f"{100 * se:.0f} %, {100 * ue:.0f} %"


CLAIMS: list[Claim] = [
    Claim(name="together/dags", where="TPC-H DAGs (Ursa §5)", run=_dags, needs="tpch_dags"),
    Claim(name="together/testbed", where="LAS_MQ's jobs, one every 50 s (§5.2)", run=_testbed),
    Claim(name="together/containers", where="UBIS's pipelines (§V.C)", run=_containers),
    Claim(name="together/executors", where="Elasecutor's applications (§V)", run=_executors),
]
