"""Summarize a report in figures, each with its unit in its name."""

from __future__ import annotations

from simulator.report import Report, quantile


def summary(report: Report) -> dict[str, float]:
    """Return name → figure in display order, without the figures that the model does not know."""
    figures: dict[str, float | None] = {"jobs": len(report.jobs), "makespan_s": report.makespan_s}
    if report.jobs:
        responses_s = [job.response_s for job in report.jobs]
        figures |= {
            "response_mean_s": report.mean_response_s,
            "response_median_s": quantile(responses_s, 0.5),
            "response_p99_s": quantile(responses_s, 0.99),
            "slowdown_mean": report.mean_slowdown,
        }
        if slowdowns := [job.slowdown for job in report.jobs if job.slowdown is not None]:
            figures["slowdown_median"] = quantile(slowdowns, 0.5)
    for name, resource in report.resources.items():
        figures[f"{name}_utilization"] = resource.utilization
        figures[f"{name}_scheduling_efficiency"] = resource.scheduling_efficiency
        figures[f"{name}_utilization_efficiency"] = resource.utilization_efficiency
    figures |= {
        "opportunistic_share": report.opportunistic_share,
        # No opportunistic share and no preemption: the model has no preemption, so a zero would mislead.
        "preemptions": report.preemptions if report.preemptions or report.opportunistic_share is not None else None,
        "stragglers": report.stragglers,
    }
    return {name: figure for name, figure in (figures | report.measures).items() if figure is not None}
