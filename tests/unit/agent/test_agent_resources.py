"""The history of each resource on the host's page, and the number of ended containers."""

from __future__ import annotations

import pytest

from agent.core.preemption_actions import Preempted
from agent.core.snapshot import ContainerUse, HostUse
from agent.http import shown
from penstock.documents import Resource, Resources
from tests.fakes.node_bed import NodeBed, status_of

MB = 1 << 20


def opened(**settings: int) -> NodeBed:
    bed = NodeBed(memory_bytes=1000 * MB, has_master=False, t_alloc=0.9, **settings)
    bed.open()
    return bed


def resources(bed: NodeBed) -> Resources:
    return bed.node.slack.by_resource(bed.node.ledger())


def test_slack_is_t_alloc_less_what_is_used_and_never_negative() -> None:
    bed = opened(link_bytes_per_s=1000)
    container = bed.launch(cpu_cores=1.5, memory_bytes=200 * MB, network_bytes_per_s=250)
    bed.now = 1.0
    use = ContainerUse(cpu_cores=0.5, memory_bytes=950 * MB)
    bed.sampled({container: use}, HostUse(disk_busy=0.4, network_busy=0.1))
    found = resources(bed)
    assert found["cpu"] == Resource(unit="cores", capacity=4, promised=1.5, used=0.5, slack=pytest.approx(3.1))
    assert (found["memory"].promised, found["memory"].used, found["memory"].slack) == (200 * MB, 950 * MB, 0.0)
    assert found["disk"] == Resource(unit="share", capacity=1.0, promised=None, used=0.4, slack=pytest.approx(0.5))
    assert found["network"].promised == 0.25 and found["network"].slack == pytest.approx(0.8)


def test_slots_that_frameworks_hold_are_in_use() -> None:
    bed = opened()
    bed.submit(1, bed.register(), 1)
    assert resources(bed)["cpu"].used == 1.0
    assert resources(bed)["network"].promised is None  # the link's rate is unknown


def test_of_what_is_over_the_page_shows_the_latest() -> None:
    bed = opened()
    containers = [bed.launch() for _ in range(51)]
    for container in containers[:50]:
        bed.exit(container)
    for _ in range(130):
        bed.register()
    bed.node.preemption.preempted += [Preempted(float(n), "c", "cpu", "paused", "") for n in range(100)]
    page = shown(status_of(bed.node, events=[{"at": n} for n in range(500)]))
    assert [one.container for one in page["containers"]] == [containers[50], *containers[49:29:-1]]
    assert len(page["jobs"]) == 100 and [one.at for one in page["preemptions"]] == list(range(80, 100))
    assert page["events"][-1] == {"at": 499} and page["more"] == {"ended": 30, "jobs": 30}
    assert page["node"] == "n" and "uptime_s" not in page and "cores" not in page
