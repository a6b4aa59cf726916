"""The history of each resource on the host's page, and the number of ended containers."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.snapshot import ContainerUse, HostUse
from agent.http import shown
from tests.fakes.node_bed import NodeBed

MB = 1 << 20


def opened(**settings: int) -> NodeBed:
    bed = NodeBed(memory_bytes=1000 * MB, has_master=False, t_alloc=0.9, **settings)
    bed.open()
    return bed


def resources(bed: NodeBed) -> dict[str, dict[str, Any]]:
    return bed.node.slack.by_resource(bed.node.ledger())


def test_slack_is_t_alloc_less_what_is_used_and_never_negative() -> None:
    bed = opened(link_bytes_per_s=1000)
    container = bed.launch(cpu_cores=1.5, memory_bytes=200 * MB, network_bytes_per_s=250)
    bed.now = 1.0
    use = ContainerUse(cpu_cores=0.5, memory_bytes=950 * MB)
    bed.sampled({container: use}, HostUse(disk_busy=0.4, network_busy=0.1))
    found = resources(bed)
    assert found["cpu"] == {"unit": "cores", "capacity": 4, "promised": 1.5, "used": 0.5, "slack": pytest.approx(3.1)}
    assert found["memory"]["promised"] == 200 * MB and found["memory"]["used"] == 950 * MB
    assert found["memory"]["slack"] == 0.0
    assert found["disk"] == {
        "unit": "share", "capacity": 1.0, "promised": None, "used": 0.4, "slack": pytest.approx(0.5)
    }  # fmt: skip
    assert found["network"]["promised"] == 0.25 and found["network"]["slack"] == pytest.approx(0.8)


def test_slots_that_frameworks_hold_are_in_use() -> None:
    bed = opened()
    bed.submit(1, bed.register(), 1)
    assert resources(bed)["cpu"]["used"] == 1.0
    assert resources(bed)["network"]["promised"] is None  # the link's rate is unknown


def test_of_ended_containers_the_page_shows_the_latest() -> None:
    live = {"container": "live", "ended": None}
    ended = [{"container": f"ended-{n}", "ended": {"by": "exit"}} for n in range(50)]
    status = {
        "containers": [*ended[:1], live, *ended[1:]],
        "jobs": [{"job": str(n)} for n in range(130)],
        "preemptions": list(range(100)),
        "events": list(range(500)),
        "uptime_s": 1.0,
        "cores": {},
        "node": "n",
    }
    page = shown(status)
    assert [one["container"] for one in page["containers"]] == ["live", *(f"ended-{n}" for n in range(20))]
    assert len(page["jobs"]) == 100 and page["preemptions"] == list(range(80, 100))
    assert page["events"][-1] == 499 and page["more"] == {"ended": 30, "jobs": 30}
    assert page["node"] == "n" and "uptime_s" not in page and "cores" not in page
