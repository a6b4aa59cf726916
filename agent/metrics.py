"""``/metrics``: Prometheus text from the status, at scrape time. Labels are bounded: kinds, states, reasons; no ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, product

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily as Counted
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.core.rank_order import ContainerRank
from agent.core.records import ContainerState
from agent.http_documents import Container, Status
from agent.queues.counts import QueueCounts
from penstock.documents import Histogram
from penstock.metrics import resource_metrics
from penstock.model import ResourceKind
from penstock.model.job_state import JobStanding
from penstock.security.certificates import certificate_metrics

#: Of each kind's queue: key in the status, type, name and text.
_PER_KIND: tuple[tuple[str, type[Gauge | Counted], str, str], ...] = (
    ("slots", Gauge, "penstock_slots", "Concurrency limit of the resource."),
    (
        "withheld", Gauge, "penstock_slots_withheld",
        "Slots that are not granted, because their cores are promised and used.",
    ),
    ("running", Gauge, "penstock_slots_in_use", "Slots that monotasks hold."),
    ("overdue", Gauge, "penstock_monotasks_overdue", "Monotasks that run on though their slots were taken back."),
    ("queued", Gauge, "penstock_monotasks_queued", "Monotasks that wait for a slot."),
    ("pending_bytes", Gauge, "penstock_pending_bytes", "Input bytes queued or running."),
    ("rate_bytes_per_s", Gauge, "penstock_processing_rate_bytes_per_second", "Processing rate X/T (Ursa)."),
    ("slot_seconds", Counted, "penstock_slot_seconds", "Slot-time of ended monotasks."),
    (
        "granted", Counted, "penstock_grants",
        "Slots granted to monotasks; without those held over a restart, or by promotion.",
    ),
    ("taken_back", Counted, "penstock_slots_taken_back", "Slots that were held too long."),
)  # fmt: skip
#: Actions on opportunistic containers, and resources they are for; those that never happened are included.
ACTIONS = ("paused", "resumed", "reclaimed", "warned", "preempted")
_RESOURCES = ("cpu", "memory", "disk", "network")
_CLASSES = ("regular", "opportunistic")
_LIVE = tuple(state.value for state in ContainerState if state is not ContainerState.ENDED)
#: Ranks beyond these are not reported: behind the fourth, all have the minimum weight.
_MOST_RANKS = 10
_STALLS = {"cpu": "cpu_stalled", "memory": "memory_stalled", "disk": "disk_stalled"}


class AgentCollector(Collector):
    """Creates the metrics from one status document per scrape."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        """Return nothing, so that registration collects nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        status = self._status()
        yield from _queues(status.kinds)
        yield from resource_metrics("penstock_", status.resources, "of this host")
        yield from certificate_metrics("penstock", status.certificates)
        for metric, value in (
            ("cpu_opportunistic_cores", status.cores.opportunistic),
            ("memory_opportunistic_bytes", status.memory.opportunistic_bytes),
        ):
            yield Gauge(f"penstock_{metric}", "Amount that opportunistic containers asked for.", value=value)
        yield Gauge("penstock_t_alloc_ratio", "UBIS's T_alloc at present.", value=status.t_alloc)
        live = [each for each in status.containers if each.state is not ContainerState.ENDED]
        yield from _containers(live)
        yield from _ranks(each.rank for each in live if each.rank is not None)
        yield from _preemptions(status)
        jobs = Counter(job.state for job in status.jobs)
        states = (JobStanding.WAITING, JobStanding.ADMITTED, JobStanding.RUNNING)
        yield _by("state", Gauge, "penstock_jobs", "Jobs known on this node.", {state: jobs[state] for state in states})
        if status.master.address:
            yield Gauge("penstock_connected_to_master", "Whether the master answers.", value=status.master.linked)
        writes = status.journal.writes
        yield Counted("penstock_journal_writes", "Records that were written or removed.", value=writes)
        degraded = len(status.degraded)
        yield Gauge("penstock_degraded", "Operations that the system refuses to the agent.", value=degraded)
        enforced = {what: float(fact.ok) for what, fact in status.enforcement.items()}
        yield _by("what", Gauge, "penstock_enforced", "Whether this host can enforce it.", enforced)


def _by(label: str, family: type[Gauge | Counted], name: str, text: str, values: Mapping[str, float]) -> Metric:
    """Return a metric with one value for each value of a label."""
    made = family(name, text, labels=[label])
    for each, value in values.items():
        made.add_metric([each], value)
    return made


def _queues(by_kind: Mapping[ResourceKind, QueueCounts]) -> Iterator[Metric]:
    kinds = [(kind.value, counts) for kind, counts in by_kind.items()]
    for key, family, name, text in _PER_KIND:
        yield _by("kind", family, name, text, {kind: getattr(counts, key) for kind, counts in kinds})
    heads = {kind: counts.head.waits_s if counts.head is not None else 0.0 for kind, counts in kinds}
    text = "How long the next job in order has waited for its turn; 0: no job waits."
    yield _by("kind", Gauge, "penstock_queue_head_wait_seconds", text, heads)
    waited = HistogramMetricFamily(
        "penstock_grant_wait_seconds", "How long granted monotasks had waited for their slot.", labels=["kind"]
    )
    for kind, counts in kinds:
        waited.add_metric([kind], _cumulative(counts.waits), counts.waits.sum_s)
    yield waited


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    """Return cumulative buckets, as Prometheus expects."""
    bounds = [*(str(bound) for bound in histogram.bounds_s), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def _containers(live: list[Container]) -> Iterator[Metric]:
    states = Counter[tuple[str, str]]((each.container_class, each.state) for each in live)
    containers = Gauge("penstock_containers", "Live containers.", labels=["class", "state"])
    for container_class in _CLASSES:
        for state in _LIVE:
            containers.add_metric([container_class, state], states[container_class, state])
    yield containers
    loose = sum(1 for each in live if each.not_enforced)
    yield Gauge("penstock_containers_not_enforced", "Live containers with a limit that is not enforced.", value=loose)
    samples = [each.sample for each in live if each.container_class == "regular"]
    most = {
        resource: max((getattr(sample, key) for sample in samples), default=0.0) for resource, key in _STALLS.items()
    }
    text = "Largest fraction of time, over all regular containers, for which a task in it waited (PSI)."
    yield _by("resource", Gauge, "penstock_regular_stalled_max_ratio", text, most)


def _ranks(ranks: Iterable[ContainerRank]) -> Iterator[Metric]:
    """Yield metrics by rank rather than by job: each job would be a new time series. Tenants' jobs of one rank are
    summed up.
    """
    jobs: dict[str, ContainerRank] = {}
    weights: Counter[int] = Counter()
    for each in ranks:
        jobs[each.job] = each
        weights[each.rank] += each.weight
    yield Gauge("penstock_ranked_jobs", "Jobs that are ranked for the processors.", value=len(jobs))
    used_s: dict[int, float] = {}
    for each in jobs.values():
        used_s[each.rank] = used_s.get(each.rank, 0.0) + each.cpu_s
    first = sorted(used_s)[:_MOST_RANKS]
    text = "Weight of the containers of the job with this rank (cpu.weight)."
    yield _by("rank", Gauge, "penstock_rank_weight", text, {str(rank): weights[rank] for rank in first})
    text = "CPU time that the job with this rank has used here so far."
    yield _by("rank", Gauge, "penstock_rank_cpu_seconds", text, {str(rank): used_s[rank] for rank in first})


def _preemptions(status: Status) -> Iterator[Metric]:
    acts = Counted("penstock_preemptions", "Actions on opportunistic containers.", labels=["action", "resource"])
    counts = dict.fromkeys(product(ACTIONS, _RESOURCES), 0)
    counts |= {(act.action, act.resource): act.count for act in status.acts}
    for labels, count in counts.items():
        acts.add_metric(labels, count)
    yield acts
    reaction = status.reaction
    yield HistogramMetricFamily(
        "penstock_preemption_seconds",
        "From the decision to preempt a container to its end.",
        buckets=_cumulative(reaction),
        sum_value=reaction.sum_s,
    )


def registry(status: Callable[[], Status]) -> CollectorRegistry:
    """Create a registry without the metrics of the process-wide default."""
    fresh = CollectorRegistry(auto_describe=False)
    fresh.register(AgentCollector(status))
    return fresh
