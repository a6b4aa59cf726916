"""``/metrics``: Prometheus text from the status, at scrape time. Labels are bounded: kinds, states, reasons; no ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, product
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.core.records import ContainerState
from penstock.metrics import resource_metrics
from penstock.model.job_state import JobStanding
from penstock.security.certificates import certificate_metrics

_PER_KIND = {
    "slots": ("penstock_slots", "Concurrency limit of the resource."),
    "withheld": ("penstock_slots_withheld", "Slots that are not granted, because their cores are promised and used."),
    "running": ("penstock_slots_in_use", "Slots that monotasks hold."),
    "overdue": ("penstock_monotasks_overdue", "Monotasks that run on though their slots were taken back."),
    "queued": ("penstock_monotasks_queued", "Monotasks that wait for a slot."),
    "pending_bytes": ("penstock_pending_bytes", "Input bytes queued or running."),
    "rate_bytes_per_s": ("penstock_processing_rate_bytes_per_second", "Processing rate X/T (Ursa)."),
}
#: Actions on opportunistic containers, and resources they are for; those that never happened are included.
ACTIONS = ("paused", "resumed", "reclaimed", "warned", "preempted")
_RESOURCES = ("cpu", "memory", "disk", "network")
_GRANTS = "Slots granted to monotasks; without those held over a restart, or by promotion."
_CLASSES = ("regular", "opportunistic")
_LIVE = tuple(state.value for state in ContainerState if state is not ContainerState.ENDED)
#: Ranks beyond these are not reported: behind the fourth, all have the minimum weight.
_MOST_RANKS = 10
_STALLS = {"cpu": "cpu_stalled", "memory": "memory_stalled", "disk": "disk_stalled"}


class AgentCollector(Collector):
    """Creates the metrics from one status document per scrape."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        """Return nothing, so that registration collects nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        status = self._status()
        yield from _queues(status["kinds"])
        yield from resource_metrics("penstock_", status["resources"], "of this host")
        yield from certificate_metrics("penstock", status["certificates"])
        for metric, value in (
            ("cpu_opportunistic_cores", status["cores"]["opportunistic"]),
            ("memory_opportunistic_bytes", status["memory"]["opportunistic_bytes"]),
        ):
            yield GaugeMetricFamily(
                f"penstock_{metric}", "Amount that opportunistic containers asked for.", value=value
            )
        yield GaugeMetricFamily("penstock_t_alloc_ratio", "UBIS's T_alloc at present.", value=status["t_alloc"])
        live = [each for each in status["containers"] if each["state"] != "ended"]
        yield from _containers(live)
        yield from _ranks(each["rank"] for each in live if each.get("rank"))
        yield from _preemptions(status)
        jobs = Counter(job["state"] for job in status["jobs"])
        known = GaugeMetricFamily("penstock_jobs", "Jobs known on this node.", labels=["state"])
        for state in (JobStanding.WAITING, JobStanding.ADMITTED, JobStanding.RUNNING):
            known.add_metric([state], jobs[state])
        yield known
        if status["master"]["address"]:
            linked = status["master"]["linked"]
            yield GaugeMetricFamily("penstock_connected_to_master", "Whether the master answers.", value=linked)
        writes = status["journal"]["writes"]
        yield CounterMetricFamily("penstock_journal_writes", "Records that were written or removed.", value=writes)
        degraded = len(status["degraded"])
        yield GaugeMetricFamily("penstock_degraded", "Operations that the system refuses to the agent.", value=degraded)
        enforced = GaugeMetricFamily("penstock_enforced", "Whether this host can enforce it.", labels=["what"])
        for what, fact in status["enforcement"].items():
            enforced.add_metric([what], float(fact["ok"]))
        yield enforced


def _queues(kinds: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    for key, (name, text) in _PER_KIND.items():
        gauge = GaugeMetricFamily(name, text, labels=["kind"])
        for kind, counts in kinds.items():
            gauge.add_metric([kind], counts[key])
        yield gauge
    waits = GaugeMetricFamily(
        "penstock_queue_head_wait_seconds",
        "How long the next job in order has waited for its turn; 0: no job waits.",
        labels=["kind"],
    )
    slot_seconds = CounterMetricFamily("penstock_slot_seconds", "Slot-time of ended monotasks.", labels=["kind"])
    grants = CounterMetricFamily("penstock_grants", _GRANTS, labels=["kind"])
    taken_back = CounterMetricFamily("penstock_slots_taken_back", "Slots that were held too long.", labels=["kind"])
    waited = HistogramMetricFamily(
        "penstock_grant_wait_seconds", "How long granted monotasks had waited for their slot.", labels=["kind"]
    )
    for kind, counts in kinds.items():
        waits.add_metric([kind], counts["head"]["waits_s"] if counts["head"] else 0.0)
        slot_seconds.add_metric([kind], counts["slot_seconds"])
        grants.add_metric([kind], counts["granted"])
        taken_back.add_metric([kind], counts["taken_back"])
        waited.add_metric([kind], _cumulative(counts["waits"]), counts["waits"]["sum_s"])
    yield from (waits, slot_seconds, grants, taken_back, waited)


def _cumulative(histogram: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return cumulative buckets, as Prometheus expects."""
    bounds = [*(str(bound) for bound in histogram["bounds_s"]), "+Inf"]
    return list(zip(bounds, accumulate(histogram["counts"]), strict=True))


def _containers(live: list[dict[str, Any]]) -> Iterator[Metric]:
    states = Counter((each["class"], each["state"]) for each in live)
    containers = GaugeMetricFamily("penstock_containers", "Live containers.", labels=["class", "state"])
    for container_class in _CLASSES:
        for state in _LIVE:
            containers.add_metric([container_class, state], states[container_class, state])
    yield containers
    loose = sum(1 for each in live if each["not_enforced"])
    yield GaugeMetricFamily(
        "penstock_containers_not_enforced", "Live containers with a limit that is not enforced.", value=loose
    )
    stalled = GaugeMetricFamily(
        "penstock_regular_stalled_max_ratio",
        "Largest fraction of time, over all regular containers, for which a task in it waited (PSI).",
        labels=["resource"],
    )
    samples = [each["sample"] for each in live if each["class"] == "regular"]
    for resource, key in _STALLS.items():
        stalled.add_metric([resource], max((sample.get(key, 0.0) for sample in samples), default=0.0))
    yield stalled


def _ranks(ranks: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield metrics by rank rather than by job: each job would be a new time series."""
    ranked: dict[int, Mapping[str, Any]] = {}
    weights: Counter[int] = Counter()
    jobs = 0
    for each in ranks:
        ranked[each["rank"]] = each
        weights[each["rank"]] += each["weight"]
        jobs = each["of"]
    yield GaugeMetricFamily("penstock_ranked_jobs", "Jobs that are ranked for the processors.", value=jobs)
    weight = GaugeMetricFamily(
        "penstock_rank_weight", "Weight of the containers of the job with this rank (cpu.weight).", labels=["rank"]
    )
    service = GaugeMetricFamily(
        "penstock_rank_cpu_seconds", "CPU time that the job with this rank has used here so far.", labels=["rank"]
    )
    for rank in sorted(ranked)[:_MOST_RANKS]:
        weight.add_metric([str(rank)], weights[rank])
        service.add_metric([str(rank)], ranked[rank]["cpu_s"])
    yield from (weight, service)


def _preemptions(status: Mapping[str, Any]) -> Iterator[Metric]:
    acts = CounterMetricFamily(
        "penstock_preemptions", "Actions on opportunistic containers.", labels=["action", "resource"]
    )
    counts = dict.fromkeys(product(ACTIONS, _RESOURCES), 0)
    counts |= {(act["action"], act["resource"]): act["count"] for act in status["acts"]}
    for labels, count in counts.items():
        acts.add_metric(labels, count)
    yield acts
    reaction = status["reaction"]
    yield HistogramMetricFamily(
        "penstock_preemption_seconds",
        "From the decision to preempt a container to its end.",
        buckets=_cumulative(reaction),
        sum_value=reaction["sum_s"],
    )


def registry(status: Callable[[], dict[str, Any]]) -> CollectorRegistry:
    """Create a registry without the metrics of the process-wide default."""
    fresh = CollectorRegistry(auto_describe=False)
    fresh.register(AgentCollector(status))
    return fresh
