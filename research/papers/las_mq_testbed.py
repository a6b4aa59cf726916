"""LAS_MQ's testbed (§5.2, and Fig. 3 of §3.3) on the tasks model: the master's own orderings and Table 1's jobs."""

from __future__ import annotations

from typing import Any

import msgspec

from research.papers.claims import Inputs, Row
from research.papers.runs import runs_of, runs_of_each
from simulator.report import Report

_OTHERS = ("fair", "las", "fifo")
#: Table 1: the first part of a job's name → the bin.
_BINS = {
    "TeraGen": 1, "SelfJoin": 1,
    "Classification": 2, "HistogramMovies": 2, "HistogramRatings": 2,
    "SequenceCount": 3, "InvertedIndex": 3,
    "WordCount": 4,
}  # fmt: skip
#: A claim such as "by nearly 40 %" holds within this many percentage points to either side.
_POINTS = 10
_FAIR: dict[str, Any] = {"policy.ordering": "fair"}
#: Policy → the reason why it can be better for some jobs.
_BETTER = {
    "fair": "Under Fair large jobs progress all the time; LAS_MQ makes them wait for small ones. ",
    "las": "LAS gives a new job everything until it has as much as the others. ",
}


def at_80_s(_inputs: Inputs) -> list[Row]:
    """Try Fig. 5 and 7(a)."""
    reports = _reports("las_mq/testbed-80s")
    return [
        *_gains(
            reports,
            {"fair": (40, "nearly 40 %"), "las": (40, "nearly 40 %"), "fifo": (46, "46 %")},
            "The paper's cluster is already overloaded at 80 s (under FIFO each job waits for the 29 before it); with "
            "the times assumed here, taken to fit its Fig. 6(a), the load is 0.9: see the scenario's first lines.",
        ),
        *_bins(reports),
        _slowdowns(reports),
        _makespans(reports),
    ]


def at_50_s(_inputs: Inputs) -> list[Row]:
    """Try Fig. 6 and 7(b)."""
    reports = _reports("las_mq/testbed-50s")
    return [
        _soon(reports),
        *_gains(
            reports,
            {"fair": (45, "around 45 %"), "las": (45, "around 45 %"), "fifo": (65, "65 %")},
            "Here no container is idle under FIFO while a task waits; the paper's FIFO leaves some unused (§5.2.4).",
        ),
        *_bins(reports),
        _slowdowns(reports),
        _makespans(reports),
    ]


def figure_3(_inputs: Inputs) -> list[Row]:
    """Try Fig. 3: with and without stage awareness, with queues ordered by arrival (FIFO) and by demand."""
    settings: list[dict[str, Any]] = [_FAIR]
    for inside, aware in (("fifo", False), ("fifo", True), ("demand", False)):
        settings.append(
            {"policy.ordering": "las_mq", "policy.las_mq_inside": inside, "policy.las_mq_stage_aware": aware}
        )
    settings.append({"policy.ordering": "las_mq", "measure.alone": True})  # equals the testbed's run, so it is shared
    fair_s, *cases_s = mean_responses_s("las_mq/testbed-50s", settings)
    return _cases([fair_s / case_s for case_s in cases_s])


def weights_at_80_s(_inputs: Inputs) -> list[Row]:
    """Try the weights of las_mq/weights, which uses the fluid model, on the testbed."""
    parts = (1e-6, 0.01, 0.1, 0.1**0.5, 0.5, 1.0)
    settings = [{"policy.ordering": "las_mq", "policy.las_mq_weights": weights(part)} for part in parts]
    fair_s, *ours_s = mean_responses_s("las_mq/testbed-80s", [_FAIR, *settings])
    below = [1 - each / fair_s for each in ours_s]
    return [
        Row(
            what="mean response time of LAS_MQ below fair, by a queue's weight relative to the one before (one from "
            "30 % on holds)",
            paper="nearly 40 %, by weights that are not given",
            ours=", ".join(f"{part:.2g}: {100 * each:.1f} %" for part, each in zip(parts, below, strict=True)),
            holds=max(below) >= 0.3,
            why="No weights compensate for the load, which is higher in the paper: see las_mq/testbed-80s.",
        )
    ]


def mean_responses_s(name: str, settings: list[dict[str, Any]]) -> list[float]:
    """Return the mean response time in seconds for each of the settings, which have one run each."""
    return [run.report.mean_response_s for (run,) in runs_of_each(name, settings)]


def weights(part: float, queues: int = 10) -> list[float]:
    """Return the weights of queues, each ``part`` × the weight of the queue before it."""
    return [part**queue for queue in range(queues)]


def _run(name: str, settings: dict[str, Any]) -> dict[str, Report]:
    return {str(run.settings.get("policy.ordering", "las_mq")): run.report for run in runs_of(name, settings)}


def _reports(name: str) -> dict[str, Report]:
    """Return ordering → report. A job's time alone does not depend on the ordering and is found once."""
    reports = _run(name, {"policy.ordering": "las_mq", "measure.alone": True})
    alone_s = {job.name: job.alone_s for job in reports["las_mq"].jobs}
    for policy, report in _run(name, {"policy.ordering": list(_OTHERS)}).items():
        jobs = [msgspec.structs.replace(job, alone_s=alone_s[job.name]) for job in report.jobs]
        reports[policy] = msgspec.structs.replace(report, jobs=jobs)
    return reports


def _soon(reports: dict[str, Report], limit_s: float = 2000.0) -> Row:
    """Return a row on Fig. 6(a), the paper's only figure with job times, which checks the assumed times."""
    shares = {
        policy: 100 * sum(job.response_s < limit_s for job in report.jobs) / len(report.jobs)
        for policy, report in reports.items()
    }
    holds = all(abs(shares[policy] - paper) <= _POINTS for policy, paper in (("las_mq", 90), ("las", 70), ("fair", 70)))
    return Row(
        what=f"jobs with a response time below {limit_s:.0f} s under LAS_MQ, LAS, Fair (± {_POINTS} points hold)",
        paper="around 90 %, 70 %, 70 %",
        ours=", ".join(f"{shares[policy]:.0f} %" for policy in ("las_mq", "las", "fair")),
        holds=holds,
        why="" if holds else "How long tasks take is not in the paper; the scenario's first lines say what is assumed.",
    )


def _gains(reports: dict[str, Report], papers: dict[str, tuple[int, str]], why: str) -> list[Row]:
    ours_s = reports["las_mq"].mean_response_s
    rows = []
    for policy, (percent, said) in papers.items():
        below = (1 - ours_s / reports[policy].mean_response_s) * 100
        holds = abs(below - percent) <= _POINTS
        rows.append(
            Row(
                what=f"mean response time of LAS_MQ below {policy} (± {_POINTS} points hold)",
                paper=said,
                ours=f"{below:.1f} % ({ours_s:.0f} s against {reports[policy].mean_response_s:.0f} s)",
                holds=holds,
                why="" if holds else why,
            )
        )
    return rows


def _bins(reports: dict[str, Report]) -> list[Row]:
    means_s = {policy: _by_bin(report) for policy, report in reports.items()}
    curve = "; ".join(
        f"{policy}: {', '.join(f'{mean:.0f}' for mean in means_s[policy])}" for policy in ("las_mq", *_OTHERS)
    )
    shared = [
        f"{policy} in bin {number + 1}"
        for policy in ("fair", "las")
        for number in range(4)
        if means_s[policy][number] <= means_s["las_mq"][number]
    ]
    fifo = [str(number + 1) for number in range(4) if means_s["fifo"][number] <= means_s["las_mq"][number]]
    return [
        Row(
            what="bins in which Fair or LAS are better",
            paper="none",
            ours=", ".join(shared) or "none",
            holds=not shared,
            why="".join(why for policy, why in _BETTER.items() if any(each.startswith(policy) for each in shared))
            + f"Mean response times in s, bins 1 to 4: {curve}.",
        ),
        Row(
            what="bins in which FIFO is better",
            paper="4",
            ours=", ".join(fifo) or "none",
            holds=fifo == ["4"],
            why="" if fifo == ["4"] else "See the means of the line above.",
        ),
    ]


def _by_bin(report: Report) -> list[float]:
    """Return the mean response time in seconds of each bin."""
    times_s: dict[int, list[float]] = {number: [] for number in (1, 2, 3, 4)}
    for job in report.jobs:
        times_s[_BINS[job.name.partition("-")[0]]].append(job.response_s)
    return [sum(times) / len(times) for times in times_s.values()]


def _slowdowns(reports: dict[str, Report]) -> Row:
    slowdowns = {policy: report.mean_slowdown or 0.0 for policy, report in reports.items()}
    order = sorted(slowdowns, key=lambda policy: slowdowns[policy])
    expected = ["las_mq", "las", "fair", "fifo"]
    return Row(
        what="order of the mean slowdowns",
        paper=" < ".join(expected),
        ours=" < ".join(f"{policy} ({slowdowns[policy]:.1f})" for policy in order),
        holds=order == expected,
        why=""
        if order == expected
        else "Under LAS every job of this workload gives way to each that comes after it, "
        "also the small ones to each other.",
    )


def _makespans(reports: dict[str, Report]) -> Row:
    ratios = {policy: reports[policy].makespan_s / reports["las_mq"].makespan_s for policy in _OTHERS}
    return Row(
        what="makespan ÷ that of LAS_MQ",
        paper="around 1.2",
        ours=", ".join(f"{policy} {ratio:.2f}" for policy, ratio in ratios.items()),
        holds=all(ratio >= 1.1 for ratio in ratios.values()),
        why="No ordering of the master leaves a container idle while a task is ready; YARN's Fair and FIFO gave jobs "
        "containers that they did not use, which the paper itself names as the reason.",
    )


def _cases(gains: list[float]) -> list[Row]:
    """Return the rows of Fig. 3. ``gains`` are Fair ÷ LAS_MQ (mean response times) in cases 1 to 4."""
    first, second, third, fourth = gains
    said = "; ".join(f"case {number}: {gain:.2f}" for number, gain in enumerate(gains, start=1))
    aware = "A stage of this workload ends soon after a tenth of its tasks: little is left to predict."
    return [
        Row(
            what="Fair ÷ LAS_MQ, case 1: FIFO in the queues, no stage awareness (1 to 1.25 holds)",
            paper="slightly above 1",
            ours=f"{first:.2f}",
            holds=1 < first <= 1.25,
            why=f"The effect of the queues alone depends on their weights, which the paper does not give ({said}).",
        ),
        Row(
            what="case 2 against case 1: stage awareness alone (up to 20 % more holds)",
            paper="around 10 % more in the best case",
            ours=_more(second, first),
            holds=1 < second / first <= 1.2,
            why="In a queue in order of arrival, a large job that is detected early no longer delays others; with the "
            f"assumed times, jobs differ more here than in the paper ({said}).",
        ),
        Row(
            what="case 3 against case 1: queues ordered by needs alone (20 % more and up hold)",
            paper="more by a wide margin",
            ours=_more(third, first),
            holds=third / first >= 1.2,
            why=f"Inside a queue small jobs go first ({said}).",
        ),
        Row(
            what="case 4 against case 3: both (more holds)",
            paper="more",
            ours=_more(fourth, third),
            holds=fourth > third,
            why=aware,
        ),
    ]


def _more(gain: float, than: float) -> str:
    return f"{(gain / than - 1) * 100:+.1f} % ({gain:.2f} against {than:.2f})"
