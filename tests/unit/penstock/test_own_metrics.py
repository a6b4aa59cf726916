"""The figures of both daemons about themselves and about resources."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest

from penstock import __version__
from penstock.documents import Resource, Resources
from penstock.metrics import OwnMetrics, resource_metrics
from penstock.ticks import BETWEEN, SAME_INSTANT
from tests.prometheus import exposed, faults


async def test_version_process_and_lateness() -> None:
    registry = CollectorRegistry()
    own = OwnMetrics(registry, "penstock")
    own.start()
    own._look(asyncio.get_running_loop(), time.monotonic() - 0.3)
    own.close()
    page = generate_latest(registry).decode()
    assert faults(page) == []
    lines = page.splitlines()
    assert f'penstock_build_info{{version="{__version__}"}} 1.0' in lines
    assert 'penstock_event_loop_lag_seconds_bucket{le="0.2"} 0.0' in lines
    assert "penstock_event_loop_lag_seconds_count 1.0" in lines
    files = next(line for line in lines if line.startswith("penstock_process_open_fds "))
    assert float(files.split()[1]) > 0
    assert not any("_created" in name for name in exposed(page))


@pytest.mark.parametrize("phase", [SAME_INSTANT, BETWEEN])
async def test_lateness_is_looked_at_between_the_ticks_of_the_daemons_work_or_with_them(phase: float) -> None:
    own = OwnMetrics(CollectorRegistry(), "penstock", phase)
    own.start()
    assert own._timer is not None
    assert (own._timer.when() - phase + 0.25) % 1.0 == pytest.approx(0.25)
    own.close()


def test_a_metric_for_each_amount_with_its_unit() -> None:
    cpu = Resource(unit="cores", capacity=4.0, promised=1.0, used=2.0, slack=1.6)
    of: Resources = {
        "cpu": cpu,
        "memory": structs.replace(cpu, unit="bytes"),
        "disk": structs.replace(cpu, unit="share", capacity=1.0, promised=None),
    }
    found = {metric.name: metric.samples[0].value for metric in resource_metrics("penstock_", of, "of this host")}
    assert found == {
        "penstock_cpu_capacity_cores": 4.0, "penstock_cpu_promised_cores": 1.0, "penstock_cpu_used_cores": 2.0,
        "penstock_cpu_slack_cores": 1.6, "penstock_memory_capacity_bytes": 4.0, "penstock_memory_promised_bytes": 1.0,
        "penstock_memory_used_bytes": 2.0, "penstock_memory_slack_bytes": 1.6, "penstock_disk_used_ratio": 2.0,
        "penstock_disk_slack_ratio": 1.6,
    }  # fmt: skip
