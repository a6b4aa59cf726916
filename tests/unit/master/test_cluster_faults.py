"""Messages at fault: the field is named, and nothing changes."""

from __future__ import annotations

from typing import Any

import pytest

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.status import status_document
from penstock.model import Capacity, KindAmounts
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress, StageProgress
from penstock.wire.errors import RpcError
from tests.unit.master.cluster_bed import Bed, bed, job_state, load, task


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (api.Heartbeat(load=load(), decided=99), "decided"),
        (job_state("j2", at=float("nan")), "submitted_at"),
        (api.ReadyTasks(job="nobody's", stage="s", tasks=[]), "job"),
        (api.ReadyTasks(job="j", stage="s", tasks=[task("ok"), task("t", cpu=-1.0)]), "tasks[1].usage"),
        (api.ReadyTasks(job="j", stage="s", tasks=[task("t", cpu=float("inf"))]), "tasks[0].usage"),
    ],
)
def test_a_message_at_fault_names_the_field_and_changes_nothing(message: e.Message, field: str) -> None:
    b = bed("a")
    b.job("a")
    before = status_document(b.cluster, 0.0)
    with pytest.raises(RpcError) as caught:
        b.serve(e.Received("a", message))
    assert caught.value.body.field == field
    assert status_document(b.cluster, 0.0) == before


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"protocol": 2}, "protocol"),
        ({"node": "a\nb"}, "node"),
        ({"node": "a\x1b[31m"}, "node"),
        ({"capacity": Capacity(cores=0.0, memory_bytes=1)}, "capacity.cores"),
        ({"capacity": Capacity(cores=1.0, memory_bytes=0)}, "capacity"),
        ({"t_alloc": float("nan")}, "t_alloc"),
        ({"jobs": [job_state("j", at=float("inf"))]}, "submitted_at"),
    ],
)
def test_a_registration_at_fault_names_the_field(more: dict[str, Any], field: str) -> None:
    cluster = Cluster(MasterSettings())
    values: dict[str, Any] = {
        "protocol": 1, "node": "a", "version": "0", "capacity": Capacity(cores=1, memory_bytes=1), "load": load(),
    }  # fmt: skip
    message = api.Register(**{**values, **more})
    with pytest.raises(RpcError) as caught:
        cluster.handle(e.Received(message.node, message), 0.0)
    assert caught.value.body.field == field
    assert str(caught.value).isprintable(), "one line"
    assert cluster.nodes == {}


def test_an_unregistered_node_s_messages_are_refused() -> None:
    with pytest.raises(RpcError):
        bed("a").serve(e.Received("stranger", api.Heartbeat(load=load())))


def test_numbers_that_are_none_do_not_reach_the_arithmetic() -> None:
    b = Bed()
    nan = float("nan")
    b.node("a", load=load(idle=(nan, 1, 2), rates=KindAmounts(nan, -1.0, 0.0), pending=KindAmounts(nan, nan, -5.0)))
    b.job("a")
    b.ready("a", task("t"))
    assert b.round() == [("t", "a")]


def test_progress_replaces_the_former_report() -> None:
    b = bed("a")
    b.job("a")
    for done in (1, 2):
        b.serve(e.Received("a", Progress(job="j", stages=[StageProgress(stage="s", tasks=3, done=done)])))
    assert b.cluster.jobs["j"].work.told == [StageProgress(stage="s", tasks=3, done=2)]
