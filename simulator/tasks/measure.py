"""Report a run with the measures of Ursa §5 and UBIS §V."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from simulator.report import JobReport, Report
from simulator.tasks.cluster import SimulatedCluster
from simulator.tasks.course import Course
from simulator.tasks.framework import Framework
from simulator.tasks.usage import Usage


def report(cluster: SimulatedCluster, alone_s: Mapping[str, float]) -> Report:
    """Return the report of a cluster that has run. ``alone_s``: job → its time alone, where known."""
    tally, counts = cluster.tally, cluster.master.counts
    measures = {"rounds": float(counts["rounds"]), "refused": float(counts["refused"])}
    if tally.started:
        measures |= {
            "containers": float(tally.started),
            "container_s": tally.container_s,
            "promoted": float(counts["promoted"]),
            "paused": float(tally.paused),
            "opportunistic_time_share": tally.opportunistic_s / tally.container_s if tally.container_s else 0.0,
        }
    if cluster.reservations is not None:
        measures |= {
            "reservations_accepted": float(cluster.reservations.accepted),
            "reservations_rejected": float(cluster.reservations.rejected),
            "preempted_for_promises": float(counts["preempted_for_promises"]),
            "longest_lack_s": cluster.reservations.longest_lack_s,
        }
    if placed := cluster.acts["executor placed"]:
        measures |= {
            "executors": float(placed),
            "forecasts": float(cluster.forecasts.made),
            "resized": float(tally.resized),
            "reprovisioned": float(cluster.acts["reprovisioned"]),
        }
    measures |= admission(cluster.frameworks) | deadlines(cluster.frameworks)
    acts = [(name, count) for node in cluster.nodes.values() for (name, _), count in node.preemption.acts.items()]
    return report_of(
        cluster.frameworks,
        cluster.usage,
        alone_s,
        opportunistic_share=tally.opportunistic / tally.started if tally.started else None,
        preemptions=sum(count for name, count in acts if name == "preempted"),
        measures=measures,
    )


def admission(frameworks: Sequence[Framework]) -> dict[str, float]:
    """Return the longest time that a job waited for memory (Ursa §4.2.2), where jobs state how much they need."""
    waits_s = [
        one.admitted_at_s - one.job.submitted_at_s
        for one in frameworks
        if one.job.memory_bytes and one.admitted_at_s is not None
    ]
    return {"longest_admission_s": max(waits_s)} if waits_s else {}


def deadlines(courses: Sequence[Course]) -> dict[str, float]:
    """Return the numbers of accepted jobs with a deadline, and of those that met it (SLA fulfillment, Rayon §6.4)."""
    bound = [course for course in courses if math.isfinite(course.job.deadline_s) and not course.rejected]
    if not bound:
        return {}
    ends = [(one.ended_at_s, one.job.submitted_at_s + one.job.deadline_s) for one in bound]
    met = [end_s for end_s, deadline_s in ends if end_s is not None and end_s <= deadline_s]
    return {"deadlines": float(len(bound)), "deadlines_met": float(len(met))}


def report_of(
    courses: Sequence[Course],
    usage: Usage,
    alone_s: Mapping[str, float],
    *,
    opportunistic_share: float | None = None,
    preemptions: int = 0,
    measures: Mapping[str, float],
) -> Report:
    """Return the report of jobs that have all ended, for any kind of cluster.

    Raises:
        ValueError: the reservation of every job was declined.
    """
    courses = [course for course in courses if not course.rejected]
    if not courses:
        raise ValueError("reservations: that of every job was declined, so none ran; ask for less, or raise share")
    jobs = [_job(course, alone_s.get(course.job.name)) for course in courses]
    end_s = max(job.ended_at_s for job in jobs)
    makespan_s = end_s - min(job.submitted_at_s for job in jobs)
    late = [[straggling(times_s) for times_s in course.stage_times_s()] for course in courses]
    ratios = [
        sum(time_s for _, time_s in stages) / job.response_s if job.response_s else 0.0
        for stages, job in zip(late, jobs, strict=True)
    ]
    own = {
        "straggler_time_ratio": sum(ratios) / len(ratios),
        "tasks": float(sum(course.tasks_ended for course in courses)),
    }
    return Report(
        model="tasks",
        makespan_s=makespan_s,
        jobs=jobs,
        resources=usage.resources(end_s, makespan_s),
        timeline=usage.timeline(),
        opportunistic_share=opportunistic_share,
        preemptions=preemptions,
        stragglers=sum(count for stages in late for count, _ in stages),
        measures=own | dict(measures),
    )


def _job(course: Course, alone_s: float | None) -> JobReport:
    assert course.ended_at_s is not None
    return JobReport(
        name=course.job.name,
        submitted_at_s=course.job.submitted_at_s,
        started_at_s=course.started_at_s,
        ended_at_s=course.ended_at_s,
        alone_s=alone_s,
    )


def straggling(times_s: list[float]) -> tuple[int, float]:
    """Return the number of a stage's stragglers, and the stage's straggler time in seconds (Ursa §5.1.2).

    Stragglers end more than 1.5 inter-quartile ranges above the third quartile. The straggler time is the time from
    that threshold to the end of the last straggler.
    """
    ordered = sorted(times_s)
    if len(ordered) < 4:
        return 0, 0.0
    low, high = _quantile(ordered, 0.25), _quantile(ordered, 0.75)
    # The last term absorbs rounding, so that tasks that end together are no stragglers.
    threshold = high + 1.5 * (high - low) + 1e-9 * ordered[-1]
    return sum(1 for time_s in ordered if time_s > threshold), max(0.0, ordered[-1] - threshold)


def _quantile(ordered: list[float], part: float) -> float:
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
