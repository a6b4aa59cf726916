"""The agent's metrics: the values of each, also where nothing has happened yet."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import structs
from prometheus_client import generate_latest

from agent.check.facts import Fact
from agent.core import Node
from agent.core.preemption import Act
from agent.core.rank_order import ContainerRank
from agent.core.records import ContainerState
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse
from agent.http_documents import Acts, Container, LinkStatus, Status
from agent.metrics import ACTIONS, registry
from penstock.model import KINDS, Capacity, Limits
from tests.fakes.node_bed import status_of
from tests.fakes.queues import complete, make_queues, submit
from tests.prometheus import exposed, faults


def status(**changed: Any) -> Status:
    node = Node(NodeSettings(node="n", instance="x", capacity=Capacity(cores=2, memory_bytes=1 << 30)))
    enforcement = {"cpu": Fact(True, ""), "disk": Fact(False, "v1", "v2")}
    return structs.replace(status_of(node, enforcement=enforcement), **changed)


def container(container_class: str, state: str, rank: ContainerRank | None = None, **fields: Any) -> Container:
    """Return a container of the status; ``fields`` are of its sample or of itself."""
    sample = {name: fields.pop(name) for name in ContainerUse.__struct_fields__ if name in fields}
    some = {
        "container": "c",
        "user": "eve",
        "job": "",
        "task": "",
        "pid": 7,
        "started_at": 0.0,
        "name": "x",
        "note": "",
    }
    none = dict.fromkeys(("profile", "executor", "ended")) | dict.fromkeys(("adopted", "orphaned", "follows"), False)
    own: dict[str, Any] = {**some, **none, "not_enforced": {}, "limits": Limits(), "rank": rank, **fields}
    of_class = cast(Literal["regular", "opportunistic"], container_class)
    return Container(container_class=of_class, state=ContainerState(state), sample=ContainerUse(**sample), **own)


def page(**changed: Any) -> str:
    return generate_latest(registry(lambda: status(**changed))).decode()


def test_nothing_is_wrong_with_an_idle_node() -> None:
    assert faults(page()) == []


def test_all_measures_on_containers_are_there_from_the_beginning() -> None:
    assert set(ACTIONS) == set(Act)
    acts = [Acts(action="paused", resource="cpu", count=3)]
    lines = page(acts=acts).splitlines()
    assert 'penstock_preemptions_total{action="paused",resource="cpu"} 3.0' in lines
    assert 'penstock_preemptions_total{action="preempted",resource="memory"} 0.0' in lines


def test_of_a_host_without_a_master_there_is_no_metric_about_one() -> None:
    assert "penstock_connected_to_master" not in exposed(page())
    lines = page(master=LinkStatus(address="head:7421", linked=True)).splitlines()
    assert "penstock_connected_to_master 1.0" in lines


def test_containers_are_counted_by_class_and_state_and_the_worst_stall_is_given() -> None:
    containers = [
        container("regular", "running", not_enforced={"disk": "v1"}, cpu_stalled=0.25),
        container("regular", "running", cpu_stalled=0.5),
        container("opportunistic", "paused", cpu_stalled=0.9),
        container("regular", "ended", not_enforced={"cpu": "x"}),
    ]
    lines = page(containers=containers).splitlines()
    assert 'penstock_containers{class="regular",state="running"} 2.0' in lines
    assert 'penstock_containers{class="opportunistic",state="paused"} 1.0' in lines
    assert 'penstock_containers{class="regular",state="paused"} 0.0' in lines
    assert "penstock_containers_not_enforced 1.0" in lines
    assert 'penstock_regular_stalled_max_ratio{resource="cpu"} 0.5' in lines


def test_ranks_are_told_by_place_with_the_weight_of_all_containers_of_a_job() -> None:
    def ranked(rank: int, weight: int) -> Container:
        said = ContainerRank(
            job=f"j{rank}", rank=rank, of=12, cpu_s=10.0 * rank, queue=1, weight=weight, nice=0, why="", tenant=""
        )
        return container("regular", "running", said)

    lines = page(containers=[ranked(1, 80), ranked(1, 20), *(ranked(rank, 1) for rank in range(2, 13))])
    assert "penstock_ranked_jobs 12.0" in lines
    assert 'penstock_rank_weight{rank="1"} 100.0' in lines
    assert 'penstock_rank_cpu_seconds{rank="2"} 20.0' in lines
    assert 'rank="10"' in lines and 'rank="11"' not in lines
    assert "penstock_ranked_jobs 0.0" in page()


def test_whether_a_host_can_enforce_it() -> None:
    lines = page().splitlines()
    assert 'penstock_enforced{what="cpu"} 1.0' in lines and 'penstock_enforced{what="disk"} 0.0' in lines


def test_grants_and_how_long_they_were_waited_for() -> None:
    queues = make_queues(jobs={"j": 0.0})
    submit(queues, "j", 1, 2)
    complete(queues, "j", 1, 5.0)
    complete(queues, "j", 2, 6.0)
    submit(queues, "j", 3, now=7.0)  # at once
    kinds = {kind: queues.counts(kind, 7.0) for kind in KINDS}
    lines = page(kinds=kinds).splitlines()
    assert 'penstock_grants_total{kind="cpu"} 3.0' in lines
    assert 'penstock_grant_wait_seconds_bucket{kind="cpu",le="0.001"} 2.0' in lines
    assert 'penstock_grant_wait_seconds_bucket{kind="cpu",le="10.0"} 3.0' in lines
    assert 'penstock_grant_wait_seconds_sum{kind="cpu"} 5.0' in lines
    assert 'penstock_grants_total{kind="disk"} 0.0' in lines
