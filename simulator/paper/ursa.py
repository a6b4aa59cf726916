"""Ursa: the experiments with expectable performance (§5.3), and single designs on TPC-H DAGs (§5.1.1, §5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.paper.claims import Claim, Inputs, Row
from simulator.paper.runs import runs_of
from simulator.report import Report

#: "Within 5 %".
_NEAR = 0.05
_SEEDS = (0, 1)
_TPCH = "ursa/tpch"


def _setting1(_inputs: Inputs) -> list[Row]:
    (run,) = runs_of("ursa/setting1")
    jobs = run.report.jobs
    expected_s = {1: 40, 2: 48, 3: 80, 4: 88, 39: 800, 40: 808}
    rows = []
    for number, paper_s in expected_s.items():
        ours_s = jobs[number - 1].response_s
        rows.append(
            _row(
                what=f"completion of j{number} (± 5 %)",
                paper=f"{paper_s} s expected",
                ours=f"{ours_s:.1f} s",
                holds=abs(ours_s / paper_s - 1) <= _NEAR,
                why="Here the second job of a pair is half a stage behind the first and not a whole one: its network "
                "runs while the first one computes, so it ends sooner than the paper expects."
                if ours_s < paper_s
                else "Each stage waits for a scheduling round and for a core to become free.",
            )
        )
    cpu = run.report.resources["cpu"].utilization
    rows.append(
        _row(
            what="CPU utilization over the makespan (above 90 % holds)",
            paper="stable, nearly full",
            ours=_percent(cpu),
            holds=cpu > 0.9,
            why="The cores are idle while the first stage's data comes, and between stages for a round.",
        )
    )
    return rows


def _setting2(_inputs: Inputs) -> list[Row]:
    reports = {run.settings["policy.ordering"]: run.report for run in runs_of("ursa/setting2")}
    least_s = 20 * 5 * (4.0 + 2.2) + 4.0  # all CPU work on all cores, after the first stage's data has come
    mean_s = {name: report.mean_response_s for name, report in reports.items()}
    rows = [
        _row(
            what=f"makespan, {name.upper()} (within 5 % of {least_s:g} s, the CPU work)",
            paper="close to the ideal case",
            ours=f"{report.makespan_s:.0f} s",
            holds=report.makespan_s <= (1 + _NEAR) * least_s,
            why="The last jobs have no other job beside them whose work could fill the cores.",
        )
        for name, report in reports.items()
    ]
    rows.append(
        _row(
            what="mean completion, SRJF against EJF",
            paper="smaller (Fig. 10)",
            ours=f"{mean_s['srjf']:.0f} s against {mean_s['ejf']:.0f} s",
            holds=mean_s["srjf"] < mean_s["ejf"],
            why="Jobs that wait for their memory to be admitted cannot overtake.",
        )
    )
    return rows


def _tpch(inputs: Inputs, settings: dict[str, Any], seeds: Sequence[int] = _SEEDS) -> list[Report]:
    file = str(inputs.trace("tpch_dags"))
    runs = [run for seed in seeds for run in runs_of(_TPCH, {"tpch.file": file, "seed": seed} | settings)]
    return [run.report for run in runs]


def _mean_response_s(reports: Sequence[Report]) -> float:
    return sum(report.mean_response_s for report in reports) / len(reports)


def _makespan_s(reports: Sequence[Report]) -> float:
    return sum(report.makespan_s for report in reports) / len(reports)


def _utilization(reports: Sequence[Report], resource: str) -> float:
    return sum(report.resources[resource].utilization for report in reports) / len(reports)


def _orderings(inputs: Inputs) -> list[Row]:
    """Table 2's two orderings and Table 6's last two rows."""
    ejf = _tpch(inputs, {"policy.ordering": "ejf"})
    srjf = _tpch(inputs, {"policy.ordering": "srjf"})
    queues = _tpch(inputs, {"policy.ordering": "ejf", "policy.ejf_weight": 0.0})
    mean_s = {name: _mean_response_s(of) for name, of in (("ejf", ejf), ("srjf", srjf), ("mo", queues))}
    se = sum(report.resources["cpu"].scheduling_efficiency or 0.0 for report in ejf) / len(ejf)
    return [
        _row(
            what="mean completion, SRJF against EJF (Table 2)",
            paper="489.96 against 600.00 s (−18 %)",
            ours=f"{mean_s['srjf']:.0f} against {mean_s['ejf']:.0f} s ({_change(mean_s['srjf'], mean_s['ejf'])})",
            holds=mean_s["srjf"] < mean_s["ejf"],
            why="Of these few jobs the largest are not much longer than the others, so there is little to gain.",
        ),
        _row(
            what="mean completion, order of jobs and of monotasks against that of monotasks alone (Table 6, EJF)",
            paper="338.67 against 351.73 s (−3.7 %)",
            ours=f"{mean_s['ejf']:.0f} against {mean_s['mo']:.0f} s ({_change(mean_s['ejf'], mean_s['mo'])})",
            holds=mean_s["ejf"] < mean_s["mo"],
            why="Placement is seldom what a job waits for here, so the order in the queues is all that matters.",
        ),
        _row(
            what="SE of the CPU, EJF (Table 2; above 85 % holds)",
            paper="92.47 %",
            ours=_percent(se),
            holds=se > 0.85,
            why="The scenario has 12 jobs instead of 200, so its ends, when few tasks are left, weigh more.",
        ),
    ]


def _executors(inputs: Inputs) -> list[Row]:
    """Table 2: YARN with Spark against EJF."""
    jobs = {"tpch.count": 25}
    (ejf,) = _tpch(inputs, jobs, seeds=_SEEDS[:1])
    (spark,) = _tpch(inputs, jobs | {"executors.cores": 4}, seeds=_SEEDS[:1])
    ue, se = spark.resources["cpu"].utilization_efficiency or 0.0, spark.resources["cpu"].scheduling_efficiency or 0.0
    ours = ejf.resources["cpu"].utilization_efficiency or 0.0
    return [
        _row(
            what="makespan of YARN+Spark against EJF (more than +10 % holds)",
            paper="3849 against 2803 s (+37 %)",
            ours=f"{spark.makespan_s:.0f} against {ejf.makespan_s:.0f} s ({_change(spark.makespan_s, ejf.makespan_s)})",
            holds=spark.makespan_s > 1.1 * ejf.makespan_s,
            why="With 25 jobs the last queries' own length counts for more than the cores that idle.",
        ),
        _row(
            what="mean completion of YARN+Spark against EJF (more than +10 % holds)",
            paper="1407 against 600 s (+135 %)",
            ours=f"{spark.mean_response_s:.0f} against {ejf.mean_response_s:.0f} s "
            f"({_change(spark.mean_response_s, ejf.mean_response_s)})",
            holds=spark.mean_response_s > 1.1 * ejf.mean_response_s,
            why="With 25 jobs instead of 200 no long queue builds up.",
        ),
        _row(
            what="UE of the CPU of YARN+Spark (± 10 %)",
            paper="69.35 %",
            ours=_percent(ue),
            holds=abs(ue - 0.6935) < 0.1,
            why="It is the share of a task's time in which it computes: the bytes that it reads are assumed.",
        ),
        _row(
            what="SE of the CPU of YARN+Spark (± 10 %)",
            paper="93.32 %",
            ours=_percent(se),
            holds=abs(se - 0.9332) < 0.1,
            why="With 25 jobs the end, when few tasks are left, weighs more.",
        ),
        _row(
            what="UE of the CPU, EJF",
            paper="99.64 %",
            ours=_percent(ours),
            holds=ours > 0.99,
            why="A simulated CPU monotask uses its core fully.",
        ),
    ]


def _oversubscription(inputs: Inputs) -> list[Row]:
    """Table 5, YARN+Spark."""
    reports = {}
    for ratio in (1, 2, 4):
        settings = {"tpch.count": 25, "executors.memory_bytes": 4e9, "executors.oversubscription": ratio}
        (reports[ratio],) = _tpch(inputs, settings, seeds=_SEEDS[:1])
    makespan_s = [report.makespan_s for report in reports.values()]
    mean_s = [report.mean_response_s for report in reports.values()]
    return [
        _row(
            what="makespan, subscription ratio 1, 2, 4: most is gained with 2",
            paper="1073, 873, 893 s",
            ours=", ".join(f"{time_s:.0f}" for time_s in makespan_s) + " s",
            holds=makespan_s[1] < makespan_s[0] and makespan_s[1] - makespan_s[2] < makespan_s[0] - makespan_s[1],
            why="Cores that are shared lose nothing by switching here.",
        ),
        _row(
            what="mean completion, ratio 1, 2, 4: worse again with 4",
            paper="435, 342, 365 s",
            ours=", ".join(f"{time_s:.0f}" for time_s in mean_s) + " s",
            holds=mean_s[1] < mean_s[0] and mean_s[1] < mean_s[2],
            why="Cores that are shared lose nothing by switching here.",
        ),
    ]


def _designs(inputs: Inputs) -> list[Row]:
    """§5.2: stage-awareness, and the network's part in placement."""
    base = _tpch(inputs, {})
    rows = []
    for what, key, makespan, response in (
        ("without stage-awareness", "policy.stage_aware", "+5.66 %", "+10.84 %"),
        ("network demands ignored", "policy.network_aware", "+6.0 % (650 against 613 s)", "+13.2 %"),
    ):
        off = _tpch(inputs, {key: False})
        for measure, of, paper in (("makespan", _makespan_s, makespan), ("mean JCT", _mean_response_s, response)):
            ours, whole = of(off), of(base)
            rows.append(
                _row(
                    what=f"{measure} {what} (EJF; an increase of more than 1 % holds)",
                    paper=paper,
                    ours=_change(ours, whole),
                    holds=ours > 1.01 * whole,
                    why="All tasks of a stage are equally long here but for ± 50 %, the nodes are alike, and the "
                    "network is far from full: placement has little to put right.",
                )
            )
    return rows


def _links(inputs: Inputs) -> list[Row]:
    """§5.2, Fig. 6: the bottleneck is what is used."""
    used = {}
    for gbps in (1, 4, 10):
        key = "cluster.nodes.0.link_bytes_per_s"
        reports = _tpch(inputs, {key: gbps * 0.125e9}, seeds=_SEEDS[:1])
        used[gbps] = (_utilization(reports, "cpu"), _utilization(reports, "network"))
    return [
        _row(
            what="1 Gbps: network used more than CPU",
            paper="high network, low CPU utilization",
            ours=f"network {_percent(used[1][1])}, CPU {_percent(used[1][0])}",
            holds=used[1][1] > used[1][0],
            why="The DAGs have no bytes; with the shuffle sizes assumed here the network is not the bottleneck.",
        ),
        _row(
            what="4 Gbps: CPU used more than the network",
            paper="CPU high again, network lower",
            ours=f"network {_percent(used[4][1])}, CPU {_percent(used[4][0])}",
            holds=used[4][0] > used[4][1] and used[4][0] > used[1][0],
            why="The DAGs have no bytes; with the shuffle sizes assumed here the network still is the bottleneck.",
        ),
        _row(
            what="10 Gbps: the network is sufficient",
            paper="CPU high, network low",
            ours=f"network {_percent(used[10][1])}, CPU {_percent(used[10][0])}",
            holds=used[10][0] > 2 * used[10][1],
            why="The DAGs have no bytes; with the shuffle sizes assumed here the network is used too much.",
        ),
    ]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _change(ours: float, base: float) -> str:
    return f"{100 * (ours / base - 1):+.1f} %".replace("-", "−")


def _row(*, what: str, paper: str, ours: str, holds: bool, why: str) -> Row:
    """``why`` is said where it is needed."""
    return Row(what=what, paper=paper, ours=ours, holds=holds, why="" if holds else why)


CLAIMS: list[Claim] = [
    Claim(name="ursa/setting1", where="Ursa §5.3, setting 1, Fig. 9", run=_setting1),
    Claim(name="ursa/setting2", where="Ursa §5.3, setting 2, Fig. 10", run=_setting2),
    Claim(name="ursa/orderings", where="Ursa §5.1.1 and §5.2, Tables 2 and 6", run=_orderings, needs="tpch_dags"),
    Claim(name="ursa/executors", where="Ursa §5.1.1, Table 2", run=_executors, needs="tpch_dags"),
    Claim(name="ursa/oversubscription", where="Ursa §5.1.2, Table 5", run=_oversubscription, needs="tpch_dags"),
    Claim(name="ursa/designs", where="Ursa §5.2", run=_designs, needs="tpch_dags"),
    Claim(name="ursa/links", where="Ursa §5.2, Fig. 6", run=_links, needs="tpch_dags"),
]
