"""``/metrics``: Prometheus text from the status, at scrape time. Labels are bounded: states, kinds of ends; no ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from master.core.draining import NodeState
from master.http_documents import JobStatus, Status
from penstock.metrics import resource_metrics
from penstock.model import EndedBy
from penstock.model.job_state import JobStanding
from penstock.security.certificates import certificate_metrics

_NODE_STATES = get_args(NodeState)
_ENDS = tuple(by.value for by in EndedBy)
_JOB_STATES = tuple(JobStanding)
#: Higher ranks and queues are combined: few jobs run before the first ten have ended.
_MOST_RANKS = _MOST_QUEUES = 10
#: The cluster's counters (``decisions`` of the status) → the metric and its help text.
_COUNTERS = {
    "rounds": ("rounds", "Scheduling rounds that had something to place."),
    "tasks": ("tasks_received", "Tasks that were given to the master to be placed."),
    "admitted": ("jobs_admitted", "Jobs that were admitted."),
    "assigned": ("tasks_assigned", "Tasks that were assigned to a node."),
    "refused": ("tasks_refused", "Assignments that a node refused."),
    "promoted": ("tasks_promoted", "Opportunistic tasks that became regular (UBIS)."),
    "withdrawn": ("tasks_withdrawn", "Tasks that were taken back from a node."),
    "placed_again": ("tasks_placed_again", "Tasks that were lost with their node and placed again."),
    "nodes_lost": ("nodes_lost", "Nodes that did not come back in time."),
    "decisions": ("decisions", "Decisions that were sent to agents."),
    "stopped_for_drains": ("tasks_stopped_for_drains", "Tasks that were stopped because their node is drained."),
    "preempted_for_promises": ("tasks_preempted_for_promises", "Tasks that made room for what was promised."),
}


class MasterCollector(Collector):
    """Reads one status document per scrape."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        """Return no metrics: nothing is collected at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        status = self._status()
        nodes, jobs = status.nodes.values(), status.jobs.values()
        yield _by("nodes", "Nodes.", "state", _counted(_NODE_STATES, (node.state for node in nodes)))
        yield _by("jobs", "Jobs that have not ended.", "state", _counted(_JOB_STATES, (job.state for job in jobs)))
        yield from _order(jobs)
        tasks = {"ready": status.tasks.ready, "placed": status.tasks.placed}
        yield _by("tasks", "Tasks that have not ended.", "state", tasks)
        yield from resource_metrics("penstock_master_", status.resources, "of the connected nodes")
        yield from certificate_metrics("penstock_master", status.certificates)
        memory, unanswered = status.memory, sum(node.unanswered for node in nodes)
        free = sum(max(0, node.memory_free_bytes) for node in nodes if node.state == "connected")
        away = max((node.away_s or 0.0 for node in nodes), default=0.0)
        for name, text, value in (
            ("reservable_bytes", "Memory of the connected nodes that jobs may reserve.", memory.reservable_bytes),
            ("reserved_bytes", "Memory reserved for admitted jobs.", memory.reserved_bytes),
            ("memory_free_bytes", "Memory not promised on any node.", free),
            ("node_away_max_seconds", "How long the node that is away longest has been.", away),
            ("decisions_unanswered", "Decisions that agents have not answered yet.", unanswered),
        ):
            yield GaugeMetricFamily(f"penstock_master_{name}", text, value=value)
        yield from self._counters(status)

    def _counters(self, status: Status) -> Iterator[Metric]:
        for name, number in status.decisions.items():
            metric, text = _COUNTERS.get(name, (name, f"Since the start of the master: {name.replace('_', ' ')}."))
            yield CounterMetricFamily(f"penstock_master_{metric}", text, value=number)
        ends = CounterMetricFamily("penstock_master_tasks_ended", "Tasks that ended, by how.", labels=["by"])
        for by, number in (dict.fromkeys(_ENDS, 0) | status.tasks.ended).items():
            ends.add_metric([by], number)
        yield ends
        asked = CounterMetricFamily(
            "penstock_master_reservations", "Promises that were given, refused, and not kept.", labels=["outcome"]
        )
        for outcome, number in status.reservations.items():
            asked.add_metric([outcome], number)
        yield asked
        promised = status.promised.values()
        yield GaugeMetricFamily("penstock_master_reservations_due", "Reservations promised now.", value=len(promised))
        for metric, total in (
            ("reservations_promised_cores", sum(one.cores for one in promised)),
            ("reservations_promised_bytes", sum(one.memory_bytes for one in promised)),
        ):
            yield GaugeMetricFamily(f"penstock_master_{metric}", "What reservations are promised now.", value=total)


def _order(jobs: Iterable[JobStatus]) -> Iterator[Metric]:
    """Yield metrics by place in the order, because each job would be a time series of its own."""
    ranked = {job.rank: job for job in jobs if job.rank}
    yield GaugeMetricFamily("penstock_master_ranked_jobs", "Jobs that have a place in the order.", value=len(ranked))
    service = GaugeMetricFamily(
        "penstock_master_rank_service_seconds", "Service that the job with this rank has received.", labels=["rank"]
    )
    left = GaugeMetricFamily(
        "penstock_master_rank_expected_left_seconds",
        "Service within which half of the jobs like the one with this rank end; no sample where that is unknown.",
        labels=["rank"],
    )
    for rank in sorted(ranked)[:_MOST_RANKS]:
        service.add_metric([str(rank)], ranked[rank].service_container_s)
        if (expected_left_s := ranked[rank].expected_left_s) is not None:
            left.add_metric([str(rank)], expected_left_s)
    yield from (service, left)
    queues = Counter(min(job.queue, _MOST_QUEUES) for job in ranked.values() if job.queue is not None)
    text = f"Jobs by multilevel queue of the policy, those of queue {_MOST_QUEUES} and beyond together."
    yield _by("queue_jobs", text, "queue", {str(queue): queues[queue] for queue in range(1, _MOST_QUEUES + 1)})


def _counted(states: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    """Count the states, with 0 for those without members: an alert cannot see a missing series."""
    return dict.fromkeys(states, 0) | Counter(found)


def _by(name: str, text: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"penstock_master_{name}", text, labels=[label])
    for value, number in sorted(values.items()):
        gauge.add_metric([value], number)
    return gauge
