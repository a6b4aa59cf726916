"""Nodes that are drained: the work that may go there, the work that is there, and the records of the drain."""

from __future__ import annotations

import pytest

from master.core import events as e
from master.core.drains import DrainRequest
from master.status import status_document
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from penstock.wire.cluster_api import Draining, Remaining
from penstock.wire.errors import RpcError
from tests.master_invariants import broken
from tests.unit.master.cluster_bed import EXIT, MB, Bed, bed, command, job_state, load, placed_task, task
from tests.unit.master.core.executor_bed import ExecutorBed, executor, profile
from tests.unit.master.core.test_core_plan_follower import Plan

ROOT = Draining("root", 1000.0)
CANCELLED = Ended(by=EndedBy.CANCELLED)


def drain(b: Bed, *nodes: str, stop: bool = False) -> None:
    b.serve(e.DrainRequested(nodes, "root", 1000.0, stop))
    assert broken(b.cluster) == []


def undrain(b: Bed, *nodes: str) -> None:
    b.serve(e.UndrainRequested(nodes, "root"))
    assert broken(b.cluster) == []


def state(b: Bed, node: str) -> str:
    said = status_document(b.cluster, b.now).nodes[node].state
    assert said == b.cluster.drain.status(b.cluster.nodes[node]).state
    return str(said)


# ---------------------------------------------------------------- nothing goes there


def test_no_task_no_command_and_no_slack_goes_to_a_drained_node() -> None:
    b = bed("a", "b")
    b.job("a")
    drain(b, "b")
    b.ready("a", *(task(f"t{i}", 10) for i in range(4)), *(command(f"c{i}", 10) for i in range(4)))
    b.ready("a", *(command(f"o{i}", 10) for i in range(4)), opportunistic="only")
    for _ in range(5):
        b.heartbeat("a")
        b.heartbeat("b")
        b.round(1.0)
    assert {node for node, _ in b.decisions_of(api.Assign)} == {"a"}
    drain(b, "a")
    b.ready("a", task("later", 10))
    b.heartbeat("a")
    assert b.round(1.0) == []
    undrain(b, "b")
    assert ("later", "b") in b.round(1.0)


def test_work_there_that_could_be_promoted_is_not() -> None:
    b = bed("a")
    b.job("a")
    b.ready("a", task("t", 10), opportunistic=True)
    b.cluster.nodes["a"].external_memory_bytes = 995 * MB
    b.cluster.table.touch(b.cluster.nodes["a"])
    b.round()
    assert [d.opportunistic for _, d in b.decisions_of(api.Assign)] == [True]
    drain(b, "a")
    b.heartbeat("a")
    b.round(1.0)
    assert b.decisions_of(api.Promote) == []
    undrain(b, "a")
    b.heartbeat("a")
    b.round(1.0)
    assert len(b.decisions_of(api.Promote)) == 1


def test_no_executor_goes_there() -> None:
    b = ExecutorBed("a", "b", forecasts={"u/app": profile((0.5, 10))})
    drain(b, "b")
    b.executors(*(executor(f"e{i}") for i in range(5)))
    for _ in range(3):
        b.round(1.0)
    assert {node for node, _ in b.decisions_of(api.Assign)} == {"a"}


def test_no_work_leaves_for_a_promise_that_cannot_go_there() -> None:
    b = bed("a")
    b.job("a", "others")
    b.ready("a", command("c", 900, 4.0), job="others")
    b.round()
    b.cluster.guarantees.plan = Plan(4.0, 900)
    b.job("a", "promised", reservation="r")
    drain(b, "a")
    b.ready("a", command("p", 900, 4.0), job="promised")
    b.round(1.0)
    assert b.decisions_of(api.Withdraw) == []


# ---------------------------------------------------------------- work that waits for it


def test_work_for_this_node_alone_waits_with_a_reason() -> None:
    b = bed("a", "b", node_timeout_s=5.0)
    b.job("a")
    drain(b, "b")
    b.ready("a", task("t", 10, nodes=("b",)))
    for _ in range(8):
        b.heartbeat("a")
        b.heartbeat("b")
        b.round(1.0)
    assert b.decisions_of(api.TellEnded) == [], "it is not refused: the node comes back"
    assert status_document(b.cluster, b.now).jobs["j"].waits.endswith("(drained: b)")
    undrain(b, "b")
    assert b.round() == [("t", "b")]


def test_a_job_that_only_fits_with_the_drained_node_waits_for_it() -> None:
    b = bed("a", "b", node_timeout_s=5.0)
    drain(b, "b")
    b.job("a", memory=1500 * MB)
    b.ready("a", task("t", 10))
    for _ in range(8):
        b.heartbeat("a")
        b.heartbeat("b")
        b.round(1.0)
    assert b.decisions_of(api.TellEnded) == []
    assert "penstock undrain" in status_document(b.cluster, b.now).jobs["j"].waits
    undrain(b, "b")
    assert len(b.round()) == 1


# ---------------------------------------------------------------- it is being worked on


def away(b: Bed, node: str, for_s: int) -> None:
    b.serve(e.NodeAway(node))
    for _ in range(for_s):
        b.heartbeat("a")
        b.round(1.0)


def test_the_jobs_that_were_submitted_at_a_drained_node_outlive_its_upgrade() -> None:
    b = bed("a", "b", node_timeout_s=5.0, drained_timeout_s=60.0)
    b.job("b")
    drain(b, "b")
    b.ready("b", command("t"))
    assert b.round() == [("t", "a")]
    away(b, "b", 20)
    b.serve(e.Received("a", api.CommandEnded(job="j", task="t", origin="b", ended=EXIT)))
    awaited = api.AwaitedTask(job="j", stage="s", request=command("t"), node="a")
    b.node("b", jobs=[job_state("j")], awaited=[awaited], draining=ROOT)
    assert [said.ended for _, said in b.decisions_of(api.TellEnded)] == [EXIT]
    assert b.round() == [], "and nothing is done twice"
    away(b, "b", 62)
    assert set(b.cluster.nodes) == {"a"} and b.cluster.jobs == {}


def test_a_node_that_goes_with_work_on_it_is_lost_as_any_other() -> None:
    b = bed("a", "b", node_timeout_s=5.0, drained_timeout_s=60.0)
    b.job("a")
    b.ready("a", command("t", nodes=("b",)))
    assert b.round() == [("t", "b")]
    drain(b, "b")
    away(b, "b", 7)
    assert set(b.cluster.nodes) == {"a"}


# ---------------------------------------------------------------- how far it is


def test_it_is_drained_when_nothing_is_left_of_the_cluster_s_or_of_its_own() -> None:
    b = bed("a", "b")
    b.job("a")
    b.ready("a", command("c", nodes=("b",)))
    b.round()
    assert state(b, "b") == "connected"
    drain(b, "b")
    assert b.decisions_of(api.Drain) == [("b", api.Drain(draining=ROOT, why="root drains it"))]
    told = b.cluster.drain.status(b.cluster.nodes["b"])
    assert (told.state, told.count) == ("draining", 1)
    assert told.remaining == [Remaining("command", "j/c", "j", "u")]
    b.serve(e.Received("b", api.CommandEnded(job="j", task="c", origin="a", ended=EXIT)))
    assert state(b, "b") == "draining", "it has not reported what else runs there"
    own = Remaining("container", "c-1", "sleep", "eve")
    known = b.numbers["b"]
    b.serve(e.Received("b", api.Heartbeat(load=load(), decided=known - 1)))
    assert state(b, "b") == "draining", "it did not know then that it is drained"
    b.serve(e.Received("b", api.Heartbeat(load=load(), decided=known, own=[own])))
    assert b.cluster.drain.status(b.cluster.nodes["b"]).remaining == [own]
    assert state(b, "b") == "draining"
    b.heartbeat("b")
    assert state(b, "b") == "drained"
    assert b.cluster.drain.status(b.cluster.nodes["a"]).jobs == ["j"]


# ---------------------------------------------------------------- stopping


def test_stopped_work_is_done_elsewhere_and_no_loss_is_counted() -> None:
    b = bed("a", "b", max_losses=2)
    b.job("a")
    b.ready("a", command("c", nodes=("a", "b")), task("t", nodes=("b",)))
    drain(b, "a")
    assert sorted(b.round()) == [("c", "b"), ("t", "b")]
    here, there = "b", "a"
    for _ in range(5):
        undrain(b, there)
        drain(b, here, stop=True)
        assert ("c", there) in b.round(), "it is placed at once, beside the copy that is being killed"
        b.serve(e.Received(here, api.CommandEnded(job="j", task="c", origin="a", ended=CANCELLED)))
        b.heartbeat(here)
        assert state(b, here) == "drained"
        here, there = there, here
    assert [(d.task, d.ended.by) for _, d in b.decisions_of(api.TellEnded)] == [("t", "lost")], (
        "its framework hears of it"
    )
    b.serve(e.Received(here, api.CommandEnded(job="j", task="c", origin="a", ended=EXIT)))
    assert [(d.task, d.ended.by) for _, d in b.decisions_of(api.TellEnded)][1:] == [("c", "exit")]
    assert status_document(b.cluster, b.now).decisions["stopped_for_drains"] == 6


@pytest.mark.parametrize("new_master", [False, True])
def test_stopped_work_runs_again_even_if_the_link_is_lost_before_its_end_is_reported(new_master: bool) -> None:
    b = bed("a", "b")
    b.job("a")
    b.ready("a", command("c", nodes=("b",)))
    assert b.round() == [("c", "b")]
    drain(b, "b", stop=True)
    assert [(node, d.task, d.again) for node, d in b.decisions_of(api.Withdraw)] == [("b", "c", True)]
    if new_master:
        b = Bed()
        awaited = api.AwaitedTask(job="j", stage="s", request=command("c", nodes=("b",)), node="b")
        b.node("a", jobs=[job_state("j", admitted=True)], awaited=[awaited])
    else:
        b.serve(e.NodeAway("b"))
    b.node("b", placed=[placed_task("c")], draining=ROOT)
    b.serve(e.Received("b", api.CommandEnded(job="j", task="c", origin="a", ended=Ended(by=EndedBy.PREEMPTED))))
    assert b.decisions_of(api.TellEnded) == []
    undrain(b, "b")
    assert ("c", "b") in b.round()


# ---------------------------------------------------------------- records


def test_a_master_that_is_new_believes_the_node() -> None:
    b = bed("a")
    b.node("b", draining=ROOT)
    b.job("a")
    b.ready("a", *(task(f"t{i}") for i in range(4)))
    assert {node for _, node in b.round()} == {"a"}
    assert b.decisions_of(api.Drain) == [], "it knows already"
    b.heartbeat("b")
    assert state(b, "b") == "drained"


def test_a_node_that_is_back_learns_of_drains_during_its_absence() -> None:
    b = bed("a", "b", "c", node_timeout_s=5.0, drained_timeout_s=5.0)
    drain(b, "c")
    for node in ("b", "c"):
        b.serve(e.NodeAway(node))
    drain(b, "b")
    undrain(b, "c")
    assert state(b, "b") == state(b, "c") == "away"
    b.heartbeat("a")
    b.round(4.0)
    b.heartbeat("a")
    b.round(4.0)
    assert list(b.cluster.nodes) == ["a"], "both are lost, and that is remembered"
    b.node("b")
    b.node("c", draining=ROOT)
    assert [(node, d.draining) for node, d in b.decisions_of(api.Drain)] == [("c", ROOT), ("b", ROOT), ("c", None)]
    b.heartbeat("b")
    assert (state(b, "b"), state(b, "c")) == ("drained", "connected")


def test_an_agent_that_does_not_understand_it_gets_no_work_all_the_same() -> None:
    b = bed("a")
    b.answering = False
    drain(b, "a")
    b.answering = True
    b.serve(e.Answered("a", b.numbers["a"], [api.Refusal(index=0, reason="unknown decision")]))
    b.job("a")
    b.ready("a", task("t"))
    assert b.round() == []
    assert state(b, "a") == "draining"


def test_a_node_that_is_only_expected_is_given_its_time() -> None:
    """A master restarted: an origin awaits a task on a node that has not come back yet."""
    b = Bed(node_timeout_s=5.0)
    b.now = 1000.0
    awaited = api.AwaitedTask(job="j", stage="s", request=command("c", 10), node="b")
    b.node("a", jobs=[job_state("j", admitted=True)], awaited=[awaited])
    b.heartbeat("a")
    b.round(4.0)
    assert "b" in b.cluster.nodes
    b.node("b", placed=[placed_task("c", memory=10)])
    assert b.decisions_of(api.Assign) == b.decisions_of(api.Withdraw) == []


# ---------------------------------------------------------------- over a restart of the master


def restarted(b: Bed) -> Bed:
    """Return a new master that has the stored records of this one."""
    fresh = Bed(node_timeout_s=5.0)
    drains = {node: said for node, said in b.kept().drains.items() if said is not None}
    fresh.serve(e.StateRestored(drains, []))
    return fresh


def test_a_node_that_was_away_gets_it_from_the_next_master() -> None:
    b = bed("a", "b", "c")
    drain(b, "c")
    for node in ("b", "c"):
        b.serve(e.NodeAway(node))
    drain(b, "b")
    undrain(b, "c")
    assert b.kept().drains == {"b": DrainRequest(ROOT), "c": DrainRequest(None)}
    fresh = restarted(b)
    fresh.node("b")
    fresh.node("c", draining=ROOT)
    assert [(node, d.draining) for node, d in fresh.decisions_of(api.Drain)] == [("b", ROOT), ("c", None)]
    fresh.heartbeat("b")
    assert (state(fresh, "b"), state(fresh, "c")) == ("drained", "connected")
    assert fresh.kept().drains == {"c": None}, "it has written it down itself"


def test_a_node_that_takes_work_is_recorded_nowhere() -> None:
    b = bed("a")
    drain(b, "a")
    b.answering = False
    undrain(b, "a")
    assert b.kept().drains == {"a": DrainRequest(None)}
    drain(b, "a")
    b.serve(e.Answered("a", b.numbers["a"] - 1, []))
    assert b.kept().drains == {"a": DrainRequest(ROOT)}, "the later request counts"
    b.answering = True
    undrain(b, "a")
    assert b.kept().drains == {"a": None}


def test_a_node_that_never_comes_back_can_be_undrained() -> None:
    b = bed("a", "b")
    drain(b, "b")
    fresh = restarted(b)
    assert list(fresh.cluster.nodes) == []
    assert fresh.cluster.drain.status(*fresh.cluster.drain.known(("b",))).state == "away"
    undrain(fresh, "b")
    with pytest.raises(RpcError, match="no node 'b' in this cluster"):
        undrain(fresh, "b")
    fresh.node("b", draining=ROOT)
    assert [d.draining for _, d in fresh.decisions_of(api.Drain)] == [None]


def test_an_expected_node_is_known_to_be_drained() -> None:
    b = bed("a", "b")
    drain(b, "b")
    fresh = restarted(b)
    awaited = api.AwaitedTask(job="j", stage="s", request=command("c", 10), node="b")
    fresh.node("a", jobs=[job_state("j", admitted=True)], awaited=[awaited])
    assert state(fresh, "b") == "away"
    undrain(fresh, "b")
    assert state(fresh, "b") == "expected"
    with pytest.raises(RpcError, match="no node 'b' in this cluster"):
        drain(fresh, "b")
    fresh.node("b", draining=ROOT)
    assert [(node, d.draining) for node, d in fresh.decisions_of(api.Drain)] == [("b", None)]
