"""What the host's page shows of each resource, and how much of what is over."""

from __future__ import annotations

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from agent.history import resources
from agent.http import shown
from penstock.model import Capacity, ContainerSpec, MonotaskSpec, ResourceKind
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch, RegisterJob, Submit

MB = 1 << 20


def node(link_bytes_per_s: int = 0) -> Node:
    capacity = Capacity(cores=4, memory_bytes=1000 * MB)
    made = Node(NodeSettings(node="n", instance="x", capacity=capacity, link_bytes_per_s=link_bytes_per_s, t_alloc=0.9))
    made.handle(e.SessionOpened(1, "eve", 1000, "test"), 0.0)
    return made


def test_slack_is_t_alloc_less_what_is_used_and_never_negative() -> None:
    one = node(link_bytes_per_s=1000)
    spec = ContainerSpec(argv=("x",), cpu_cores=1.5, memory_bytes=200 * MB, network_bytes_per_s=250)
    one.handle(e.Asked(m.LAUNCH, 1, Launch(container=spec)), 0.0)
    uses = {"c-x-1": ContainerUse(cpu_cores=0.5, memory_bytes=950 * MB)}
    one.handle(e.Sampled(Snapshot(1.0, 1.0, HostUse(disk_busy=0.4, network_busy=0.1), uses), 0.0), 1.0)
    found = resources(one)
    assert found["cpu"] == {"unit": "cores", "capacity": 4, "promised": 1.5, "used": 0.5, "slack": pytest.approx(3.1)}
    assert found["memory"]["promised"] == 200 * MB and found["memory"]["used"] == 950 * MB
    assert found["memory"]["slack"] == 0.0
    assert found["disk"] == {
        "unit": "share", "capacity": 1.0, "promised": None, "used": 0.4, "slack": pytest.approx(0.5)
    }  # fmt: skip
    assert found["network"]["promised"] == 0.25 and found["network"]["slack"] == pytest.approx(0.8)


def test_slots_that_frameworks_hold_are_in_use() -> None:
    one = node()
    one.handle(e.JobRegistered(1, RegisterJob(name="j"), 0.0), 0.0)
    job = next(iter(one.jobs))
    one.handle(
        e.Asked(m.SUBMIT, 1, Submit(job=job, monotasks=[MonotaskSpec(id=1, kind=ResourceKind.CPU, input_bytes=1)])), 0.0
    )
    assert resources(one)["cpu"]["used"] == 1.0
    assert resources(one)["network"]["promised"] is None  # the link's rate is unknown


def test_of_what_is_over_the_page_shows_the_latest() -> None:
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
