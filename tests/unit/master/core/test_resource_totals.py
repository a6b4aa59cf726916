"""The figures of each resource on the cluster's page, and the order of its jobs."""

from __future__ import annotations

from typing import Any

import pytest

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.resource_totals import resources
from master.http import shown
from master.status import status_document
from penstock.documents import Resource
from penstock.model import Capacity, KindAmounts
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import job_row, master_status, node_row


def register(cluster: Cluster, name: str, *, t_alloc: float, **load: Any) -> None:
    said = api.Load(rates=KindAmounts(), pending=KindAmounts(), idle=KindAmounts(4, 1, 2), **load)
    capacity = Capacity(cores=4, memory_bytes=1000)
    message = api.Register(
        protocol=1, node=name, version="0", capacity=capacity, load=said, t_alloc=t_alloc, complete=True
    )
    cluster.handle(e.Received(name, message), 0.0)


def test_resources_of_connected_nodes_together() -> None:
    cluster = Cluster(MasterSettings())
    assert resources(cluster.nodes.values())["cpu"] == Resource(unit="cores", capacity=0, promised=0, used=0, slack=0)
    register(cluster, "a", t_alloc=0.9, used_cores=1.0, promised_cores=2.0, disk_busy=0.8, promised_memory_bytes=300)
    register(cluster, "b", t_alloc=0.5, used_cores=3.0, used_memory_bytes=400)
    found = resources(cluster.nodes.values())
    assert found["cpu"] == Resource(unit="cores", capacity=8, promised=2.0, used=4.0, slack=pytest.approx(2.6))
    assert found["memory"] == Resource(
        unit="bytes", capacity=2000, promised=300, used=400, slack=pytest.approx(1000)
    )  # fmt: skip
    assert found["disk"].capacity == 1.0 and found["disk"].used == pytest.approx(0.4)
    assert found["disk"].promised is None and found["disk"].slack == pytest.approx(0.05 + 0.25)
    assert status_document(cluster, 0.0).resources == found


def test_jobs_that_wait_come_first_and_what_is_left_out_is_counted() -> None:
    states = {f"j-{n}": job_row("eve", "waiting" if n == 250 else "admitted") for n in range(300)}
    page = shown(master_status(jobs=states, nodes={f"n-{n}": node_row() for n in range(600)}))
    assert list(page["jobs"])[:3] == ["j-250", "j-0", "j-1"] and len(page["jobs"]) == 200
    assert "reason" not in page["jobs"]["j-0"]
    assert len(page["nodes"]) == 500 and page["more"] == {"nodes": 100, "jobs": 100}
