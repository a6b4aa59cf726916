"""A master that has just started hears of ends before it knows whose they are: nothing that ran is run again."""

from __future__ import annotations

import pytest

from master.core import events as e
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, Bed, bed, command, job_state

PREEMPTED = Ended(by=EndedBy.PREEMPTED, reason="memory was wanted")


def ran_on_b(b: Bed, ended: Ended = EXIT) -> None:
    """What b has to say behind its registration."""
    b.serve(e.Said("b", api.CommandEnded(job="j", task="t", origin="a", ended=ended)))


def origin_registers(b: Bed, *, told: bool = True, **more: object) -> None:
    """It waits for a command that it was told is on b; or does not know yet that it was placed."""
    awaited = [api.AwaitedTask(job="j", stage="s", request=command("t"), node="b")]
    ready = [api.ReadyTasks(job="j", stage="s", tasks=[command("t")])]
    b.node("a", jobs=[job_state("j")], awaited=awaited if told else [], ready=[] if told else ready, **more)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("other", [False, True], ids=["nothing of the job is known", "another command of it runs"])
def test_an_end_is_kept_for_an_origin_that_has_yet_to_register(told: bool, other: bool) -> None:
    b = bed("c")
    if other:
        placed = api.PlacedTask(
            job="j", stage="s", task="other", origin="a", remaining=command("other").usage, memory_bytes=0,
            opportunistic=False, command=True,
        )  # fmt: skip
        b.node("c", placed=[placed])
    b.node("b")
    ran_on_b(b)
    origin_registers(b, told=told)
    assert [(node, said.task, said.node, said.ended) for node, said in b.said(api.TellEnded)] == [("a", "t", "b", EXIT)]
    assert b.round() == []
    assert "t" not in b.cluster.jobs["j"].tasks


def test_what_was_stopped_before_the_origin_registered_runs_again() -> None:
    b = bed("b")
    ran_on_b(b, PREEMPTED)
    origin_registers(b)
    assert [task for task, _ in b.round()] == ["t"]


def test_an_end_of_a_job_that_its_origin_no_longer_has_is_forgotten() -> None:
    b = bed("b")
    ran_on_b(b)
    b.node("a")
    assert b.cluster.jobs == {} and b.said(api.TellEnded) == []
    ran_on_b(b)
    assert b.cluster.jobs == {}, "its origin is here, and does not know it"


def test_an_end_whose_origin_never_comes_is_forgotten_with_it() -> None:
    b = bed("b")
    ran_on_b(b)
    b.heartbeat("b")
    for _ in range(4):
        b.now += 4.0
        b.heartbeat("b")
        b.round()
    assert b.cluster.jobs == {} and set(b.cluster.nodes) == {"b"}
