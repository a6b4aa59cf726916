"""Metrics of both daemons at ``/metrics``: of the process (version, process data, lag of the loop) and of resources."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from penstock import __version__
from penstock.documents import Resources
from penstock.ticks import BETWEEN, next_tick_s

#: The interval at which the lag of the loop is measured, in seconds.
_LOOK_S = 1.0
#: The buckets of the lag. libuv counts in whole milliseconds, so buckets below 2 ms would mean nothing.
_LAG_BOUNDS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

#: Annotated here, because the library has no annotation for it.
_without_created: Callable[[], object] = disable_created_metrics
#: Unit in the status → unit in the names of metrics.
_UNITS = {"cores": "cores", "bytes": "bytes", "share": "ratio"}


class OwnMetrics:
    """Metrics of the process. ``prefix`` is ``penstock`` for the agent and ``penstock_master`` for the master."""

    def __init__(self, registry: CollectorRegistry, prefix: str, phase: float = BETWEEN) -> None:
        """``phase`` of the looks at the lag: see :mod:`penstock.ticks`."""
        _without_created()  # process_start_time_seconds already has the time when counters began
        ProcessCollector(namespace=prefix, registry=registry)
        build = Gauge(f"{prefix}_build_info", "1, with the version that runs.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        self._lag = Histogram(
            f"{prefix}_event_loop_lag_seconds",
            "How late a timer of the event loop came, looked at once a second.",
            registry=registry,
            buckets=_LAG_BOUNDS_S,
        )
        self._phase = phase
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to measure the lag of the loop."""
        self._look_next(asyncio.get_running_loop())

    def close(self) -> None:
        """Stop to measure."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_next(self, loop: asyncio.AbstractEventLoop) -> None:
        due = next_tick_s(time.monotonic(), _LOOK_S, self._phase)
        self._timer = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Note the lag. The work of other timers is none: they wake tasks, which run after the timers of an instant."""
        self._lag.observe(max(0.0, time.monotonic() - due))
        self._look_next(loop)


def resource_metrics(prefix: str, of: Resources, whose: str) -> Iterator[Metric]:
    """Yield a metric for each resource and each of capacity, promised, used and slack; the unit is in its name."""
    texts = {
        "capacity": "How much there is {whose}.",
        "promised": "What is promised to regular work {whose}.",
        "used": "What is used {whose}.",
        "slack": "T_alloc × capacity − used (UBIS) {whose}.",
    }
    for name, amounts in of.items():
        for what, text in texts.items():
            amount = getattr(amounts, what)
            if amount is not None and not (what == "capacity" and amounts.unit == "share"):
                unit = _UNITS[amounts.unit]
                yield GaugeMetricFamily(
                    f"{prefix}{name}_{what}_{unit}", f"{name}: {text.format(whose=whose)}", value=amount
                )
