"""``/metrics``: Prometheus text from the status, at scrape time. Labels are bounded: kinds, states, reasons; no ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class AgentCollector(Collector):
    """Reads one status document per scrape."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        """Nothing is collected at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        status = self._status()
        per_kind = {
            "slots": ("penstock_slots", "Concurrency limit of the resource."),
            "running": ("penstock_slots_in_use", "Monotasks that hold a slot."),
            "queued": ("penstock_monotasks_queued", "Monotasks that wait for a slot."),
            "pending_bytes": ("penstock_pending_bytes", "Input bytes queued or running."),
            "rate_bytes_per_s": ("penstock_processing_rate_bytes_per_second", "Processing rate X/T (Ursa)."),
        }
        for key, (name, text) in per_kind.items():
            gauge = GaugeMetricFamily(name, text, labels=["kind"])
            for kind, counts in status["kinds"].items():
                gauge.add_metric([kind], counts[key])
            yield gauge
        slot_seconds = CounterMetricFamily("penstock_slot_seconds", "Slot-time of ended monotasks.", labels=["kind"])
        for kind, counts in status["kinds"].items():
            slot_seconds.add_metric([kind], counts["slot_seconds"])
        yield slot_seconds
        yield from self._memory_and_cores(status)
        states = Counter((c["class"], c["state"]) for c in status["containers"] if c["state"] != "ended")
        containers = GaugeMetricFamily("penstock_containers", "Live containers.", labels=["class", "state"])
        for (container_class, state), number in states.items():
            containers.add_metric([container_class, state], number)
        yield containers
        acts = CounterMetricFamily(
            "penstock_preemptions", "What was done to opportunistic containers.", labels=["action", "resource"]
        )
        for act in status["acts"]:
            acts.add_metric([act["action"], act["resource"]], act["count"])
        yield acts
        yield _histogram(status["reaction"])
        yield GaugeMetricFamily("penstock_jobs", "Jobs known on this node.", value=len(status["jobs"]))
        yield GaugeMetricFamily(
            "penstock_master_linked", "Whether the master answers.", value=status["master"]["linked"]
        )
        enforced = GaugeMetricFamily("penstock_enforced", "Whether this host can enforce it.", labels=["what"])
        for what, fact in status["enforcement"].items():
            enforced.add_metric([what], float(fact["ok"]))
        yield enforced

    def _memory_and_cores(self, status: dict[str, Any]) -> Iterator[Metric]:
        for room, unit in (("memory", "_bytes"), ("cores", "")):
            gauge = GaugeMetricFamily(f"penstock_{room}{unit}", f"What of the {room} is what.", labels=["what"])
            for key, value in status[room].items():
                gauge.add_metric([key.removesuffix("_bytes")], value)
            yield gauge


def _histogram(reaction: dict[str, Any]) -> Metric:
    """Prometheus wants cumulative buckets."""
    bounds = [*(str(bound) for bound in reaction["bounds_s"]), "+Inf"]
    name, text = "penstock_preemption_seconds", "From the decision to preempt a container to its end."
    return HistogramMetricFamily(
        name, text, list(zip(bounds, accumulate(reaction["counts"]), strict=True)), reaction["sum_s"]
    )


def registry(status: Callable[[], dict[str, Any]]) -> CollectorRegistry:
    """A registry of our own: nothing of the process-wide default leaks in."""
    fresh = CollectorRegistry(auto_describe=False)
    fresh.register(AgentCollector(status))
    return fresh
