"""Shared parts of Ursa's claims: the runs on TPC-H DAGs, SE and UE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from research.papers.claims import Inputs
from research.papers.runs import runs_of_each
from simulator.report import Report

TPCH = "ursa/tpch"
#: YARN with Spark, as the paper configured it (§5.1.1).
SPARK = {"executors.cores": 4}


def tpch(inputs: Inputs, *settings: Mapping[str, Any]) -> list[Report]:
    """Run the TPC-H scenario with each of the settings, and return the reports."""
    file = {"tpch.file": str(inputs.trace("tpch_dags"))}
    return [run.report for (run,) in runs_of_each(TPCH, [file | dict(each) for each in settings])]


def se(report: Report, resource: str = "cpu") -> float:
    """Return the scheduling efficiency: allocated ÷ capacity (§5)."""
    return report.resources[resource].scheduling_efficiency or 0.0


def ue(report: Report, resource: str = "cpu") -> float:
    """Return the utilization efficiency: used ÷ allocated (§5)."""
    return report.resources[resource].utilization_efficiency or 0.0
