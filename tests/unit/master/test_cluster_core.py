"""The core's interface, message by message: cases that no random walk would show so clearly."""

from __future__ import annotations

from typing import Any

from master.core import events as e
from master.http_documents import Tasks
from master.status import status_document
from penstock.model import Ended, EndedBy, KindAmounts
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, MB, bed, command, job_state, task


class Counted(dict[Any, Any]):
    """A dictionary that counts how often all of it is walked."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


# ---------------------------------------------------------------- placement


def test_a_job_is_admitted_gets_its_priority_once_and_its_tasks_a_node() -> None:
    b = bed("a", "b")
    decided = b.job("a", at=100.0)
    assert [type(d) for _, d in decided] == [api.SetPriority, api.AdmitJob]
    assert decided[0][1].priority == -100.0
    b.ready("a", task("t", nodes=("b",)))
    assert b.round() == [("t", "b")]
    assign = b.decisions_of(api.Assign)[0][1]
    assert (assign.origin, assign.user, assign.priority) == ("a", "u", -100.0)
    assert [(node, d.node) for node, d in b.decisions_of(api.TellPlaced)] == [("a", "b")]
    b.node("a", jobs=[job_state("j", at=100.0, priority=-100.0, admitted=True)])
    assert len(b.decisions_of(api.SetPriority)) == 1, "an agent that knows the priority is not told again"


def test_a_burst_is_not_placed_twice_on_the_same_idle_node() -> None:
    b = bed("a")
    b.answering = False
    b.job("a")
    b.ready("a", *[task(f"t{i}", cpu=1000) for i in range(9)])
    assert len(b.round()) == 4, "four idle cores"
    b.heartbeat("a", decided=0)  # made before the decision arrived: reports four idle cores again
    assert b.round() == []
    b.serve(e.Answered("a", b.numbers["a"], []))
    b.heartbeat("a", idle=(0, 1, 2), pending=KindAmounts(cpu=4000.0 * MB))
    assert b.round(1.0) == []
    assert not b.cluster.wants_round, "nothing has changed since"


def test_a_core_is_idle_by_its_node_s_report_however_lately_a_task_was_placed() -> None:
    """The node knows which placed tasks have come to its queues; no time has to pass for that."""
    b = bed("a", ept_s=10.0)
    b.job("a")
    b.ready("a", *[task(f"t{i}", cpu=1000) for i in range(6)])
    assert len(b.round()) == 4
    b.heartbeat("a", idle=(0, 1, 2), pending=KindAmounts(cpu=4000.0 * MB))
    assert b.round() == []
    b.heartbeat("a", idle=(1, 1, 2), pending=KindAmounts(cpu=4000.0 * MB))
    assert len(b.round()) == 1


def test_a_refused_task_goes_back_and_is_not_offered_to_that_node_before_it_reports() -> None:
    b = bed("a")
    b.answering = False
    b.job("a")
    b.ready("a", task("t"))
    assert b.round() == [("t", "a")]
    b.serve(e.Answered("a", b.numbers["a"], [api.Refusal(index=0, reason="no room")]))
    assert b.round() == []
    assert status_document(b.cluster, b.now).jobs["j"].waits.startswith("1 task of stage s waits for a node: of 1 node")
    b.heartbeat("a")
    assert b.round() == [("t", "a")]
    assert b.cluster.counts["refused"] == 1


def test_memory_is_held_until_the_task_is_done_and_others_promises_count() -> None:
    b = bed("a")
    b.heartbeat("a", promised_memory_bytes=300 * MB)
    b.job("a")
    b.ready("a", task("t1", 500), task("t2", 300))
    assert b.round() == [("t1", "a")]
    b.heartbeat("a", promised_memory_bytes=800 * MB)
    assert b.round() == []
    b.serve(e.Received("a", api.TasksDone(job="j", tasks=["t1"])))
    assert b.round() == [("t2", "a")]


def test_others_memory_is_distinguished_from_ours_at_any_time() -> None:
    b = bed("a", "b")
    b.job("b")
    b.heartbeat("a", promised_memory_bytes=300 * MB)  # 300 MB belong to others, all the time
    b.answering = False

    def free() -> float:
        return b.cluster.nodes["a"].memory_free_bytes() / MB

    b.ready("b", task("t", 200, nodes=("a",)))
    assert b.round() == [("t", "a")]
    assert free() == 500
    b.heartbeat("a", decided=0, promised_memory_bytes=300 * MB)  # crossed the assignment
    assert free() == 500
    b.serve(e.Answered("a", b.numbers["a"], []))
    b.heartbeat("a", promised_memory_bytes=500 * MB)
    assert free() == 500
    b.serve(e.Received("b", api.TasksDone(job="j", tasks=["t"])))
    b.heartbeat("a", decided=1, promised_memory_bytes=500 * MB)  # crossed the withdrawal
    assert free() == 500, "it is held until the node is known to be rid of it"
    b.serve(e.Answered("a", b.numbers["a"], []))
    assert free() == 700
    b.heartbeat("a", promised_memory_bytes=300 * MB)
    assert free() == 700


def test_a_node_that_reports_a_withdrawn_task_as_done_holds_it_no_longer() -> None:
    b = bed("a", "b")
    b.job("b")
    b.answering = False
    b.ready("b", task("t", 200, nodes=("a",)))
    assert b.round() == [("t", "a")]
    b.serve(e.Answered("a", b.numbers["a"], []))
    b.serve(e.Received("b", api.TasksDone(job="j", tasks=["t"])))  # the origin is first, and node a has to let go
    assert b.cluster.nodes["a"].held
    b.serve(e.Received("a", api.TasksDone(job="j", tasks=["t"])))
    assert not b.cluster.nodes["a"].held
    b.heartbeat("a", decided=1, promised_memory_bytes=200 * MB)  # a container of another owner has come meanwhile
    b.serve(e.Answered("a", b.numbers["a"], []))
    assert b.cluster.nodes["a"].memory_free_bytes() == 800 * MB


def test_a_promotion_counts_at_once_and_is_not_taken_for_others_memory() -> None:
    b = bed("a")
    b.job("a")
    b.heartbeat("a", promised_memory_bytes=800 * MB)
    b.ready("a", command("o", 300), opportunistic=True)
    b.round()
    b.answering = False
    b.ready("a", task("t", 2000))
    b.heartbeat("a", promised_memory_bytes=100 * MB)
    b.round()
    node = b.cluster.nodes["a"]
    assert node.memory_free_bytes() == 600 * MB
    b.heartbeat("a", decided=b.numbers["a"] - 1, promised_memory_bytes=100 * MB)  # crossed the promotion
    assert node.memory_free_bytes() == 600 * MB
    b.serve(e.Answered("a", b.numbers["a"], []))
    b.heartbeat("a", promised_memory_bytes=400 * MB)
    assert (node.memory_free_bytes(), node.external_memory_bytes) == (600 * MB, 100 * MB)


def test_cores_promised_to_commands_are_not_promised_twice() -> None:
    b = bed("a")
    b.job("a")
    b.ready("a", command("c1", cores=3), command("c2", cores=2), command("c3", cores=1))
    assert [name for name, _ in b.round()] == ["c1", "c3"]


def test_ends_are_relayed_to_the_origin() -> None:
    b = bed("a", "b")
    b.job("a")
    b.ready("a", command("c", nodes=("b",)))
    b.round()
    b.serve(e.Received("b", api.CommandEnded(job="j", task="c", origin="a", ended=EXIT)))
    assert [(node, d.task, d.node, d.ended) for node, d in b.decisions_of(api.TellEnded)] == [("a", "c", "b", EXIT)]
    assert status_document(b.cluster, b.now).tasks == Tasks(ready=0, placed=0, ended={"exit": 1})


def test_done_at_the_origin_frees_the_node_that_held_it() -> None:
    b = bed("a", "b")
    b.job("a")
    b.ready("a", task("t", 900, nodes=("b",)), task("u", 900, nodes=("b",)))
    assert b.round() == [("t", "b")]
    b.serve(e.Received("a", api.TasksDone(job="j", tasks=["t"])))
    assert [(node, d.task) for node, d in b.decisions_of(api.Withdraw)] == [("b", "t")]
    assert b.round() == [("u", "b")]


def test_a_cancelled_command_ends_as_its_node_reports() -> None:
    b = bed("a", "b")
    b.job("a")
    b.ready("a", command("c", nodes=("b",)), task("t", 2000))
    b.round()
    b.serve(e.Received("a", api.TasksCancelled(job="j", tasks=["c", "t"])))
    assert [d.task for _, d in b.decisions_of(api.TellEnded)] == ["t"]
    how = Ended(by=EndedBy.CANCELLED, cpu_seconds=1.5)
    b.serve(e.Received("b", api.CommandEnded(job="j", task="c", origin="a", ended=how)))
    assert b.decisions_of(api.TellEnded)[-1][1].ended == how


# ---------------------------------------------------------------- admission


def test_jobs_wait_for_memory_in_order_and_small_ones_do_not_overtake() -> None:
    b = bed("a")
    b.job("a", "first", 600 * MB, at=1)
    b.job("a", "large", 900 * MB, at=2)
    b.job("a", "small", 101 * MB, at=3)
    b.job("a", "as large", 500 * MB, at=4)
    b.job("a", "nothing", 0, at=5)
    assert [d.job for _, d in b.decisions_of(api.AdmitJob)] == ["first", "nothing"]
    told = {d.job: d.why for _, d in b.decisions_of(api.TellWaiting)}
    assert told["large"] == "it wants 858 MiB reserved, 381 MiB of 954 MiB is not reserved"
    waits = "job large (large) is ahead of it and also waits"
    assert told["small"] == f"{waits}; there is room for it, but that one might start later"
    assert told["as large"] == waits
    b.serve(e.Received("a", api.JobEnded(job="as large")))
    b.serve(e.Received("a", api.JobEnded(job="first")))
    assert [d.job for _, d in b.decisions_of(api.AdmitJob)] == ["first", "nothing", "large"]


def test_no_user_gets_the_name_of_another_user_s_job() -> None:
    b = bed("a")
    b.job("a", "j0", 600 * MB, at=1, user="bob", name="merger")
    b.job("a", "j1", 900 * MB, at=2, user="bob", name="merger")
    b.job("a", "j2", 101 * MB, at=3, user="eve")
    b.job("a", "j3", 500 * MB, at=4, user="bob")
    told = {d.job: d.why for _, d in b.decisions_of(api.TellWaiting)}
    assert "job j1 is ahead of it" in told["j2"] and "merger" not in told["j2"]
    assert "job j1 (merger) is ahead of it" in told["j3"]


def test_a_job_larger_than_the_cluster_gets_the_reason_and_delays_no_other() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.job("a", "huge", 3000 * MB, at=1)
    b.job("a", "next", 100 * MB, at=2)
    assert [d.job for _, d in b.decisions_of(api.AdmitJob)] == ["next"]
    assert "the whole cluster has 954 MiB" in b.decisions_of(api.TellWaiting)[0][1].why
    b.ready("a", task("t"), job="huge")
    b.round()
    b.heartbeat("a")
    b.round(4.0)
    assert b.decisions_of(api.TellEnded) == [], "a node may still join"
    b.heartbeat("a")
    b.round(2.0)
    ended = b.decisions_of(api.TellEnded)[0][1].ended
    assert ended.by is EndedBy.REFUSED
    assert "the whole cluster has 954 MiB" in ended.reason


def test_a_task_that_no_node_can_ever_hold_ends_with_the_reason() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.job("a")
    b.ready("a", task("t", 2000), task("u", nodes=("nowhere",)), task("v", 900))
    b.ready("a", command("wide", cores=64.0), command("both", 2000, 64.0))
    b.round()
    b.heartbeat("a")
    b.round(4.0)
    b.heartbeat("a")
    b.round(4.0)
    reasons = {d.task: d.ended.reason for _, d in b.decisions_of(api.TellEnded)}
    assert reasons == {
        "t": "it asks for 1.86 GiB, and a node that it may use has at most 954 MiB; ask for less",
        "wide": "it asks for 64 cores, and a node that it may use has at most 4 cores; ask for less",
        "both": "it asks for 1.86 GiB and 64 cores, and a node that it may use has at most 954 MiB and 4 cores; "
        "ask for less",
        "u": "none of its nodes (nowhere) is in the cluster",
    }


def test_a_task_that_a_complete_cluster_can_never_hold_is_refused_at_once() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.now += 6.0
    b.heartbeat("a")
    b.job("a")
    b.ready("a", task("t", 2000))
    b.round()
    [(_, told)] = b.decisions_of(api.TellEnded)
    assert told.ended.reason.startswith("it asks for 1.86 GiB")
    b.job("a", "large", 2000 * MB)
    b.round()
    [(_, waits)] = b.decisions_of(api.TellWaiting)
    assert waits.never
    assert waits.why == "it wants 1.86 GiB reserved, the whole cluster has 954 MiB; ask for less, or add nodes"


def test_a_task_that_no_node_can_hold_is_refused_though_its_job_waits_for_its_admission() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.now += 6.0
    b.heartbeat("a")
    b.job("a", "first", 900 * MB)
    b.job("a", "waits", 900 * MB)
    b.ready("a", task("t", 2000), task("u", 900), job="waits")
    b.round()
    assert [(d.job, d.task, d.ended.by) for _, d in b.decisions_of(api.TellEnded)] == [("waits", "t", EndedBy.REFUSED)]
    assert [d.job for _, d in b.decisions_of(api.AdmitJob)] == ["first"]


def test_tasks_of_a_job_that_waits_are_looked_at_again_only_if_the_cluster_or_its_tasks_have_changed() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.job("a", "first", 900 * MB)
    b.job("a", "waits", 900 * MB)
    b.ready("a", task("t", 900), job="waits")
    b.round()
    ready = b.cluster.jobs["waits"].ready = Counted(b.cluster.jobs["waits"].ready)
    for _ in range(3):
        b.heartbeat("a")
        b.round()
    assert ready.walks == 0
    b.now += 6.0
    b.heartbeat("a")
    b.ready("a", task("u", 2000), job="waits")
    b.round()
    assert [d.task for _, d in b.decisions_of(api.TellEnded)] == ["u"]


def test_containers_of_no_job_keep_a_job_waiting_and_do_not_make_it_too_large() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.now += 6.0
    b.heartbeat("a", promised_memory_bytes=600 * MB)
    b.job("a", "large", 900 * MB)
    b.ready("a", task("t", 900), job="large")
    b.round()
    [(_, waits)] = b.decisions_of(api.TellWaiting)
    assert not waits.never
    assert waits.why == (
        "it wants 858 MiB reserved, 381 MiB is not promised to containers of no job; it waits for their end"
    )
    b.round(4.0)
    b.heartbeat("a", promised_memory_bytes=600 * MB)
    b.round(4.0)
    assert b.decisions_of(api.TellEnded) == []
    b.heartbeat("a")
    b.round()
    assert [d.job for _, d in b.decisions_of(api.AdmitJob)] == ["large"]


def test_a_node_that_is_away_is_waited_for_before_anything_is_refused() -> None:
    b = bed("a", "b", node_timeout_s=5.0)
    b.now += 6.0
    b.heartbeat("a")
    b.serve(e.NodeAway("b"))
    b.job("a", "large", 4000 * MB)
    b.job("a")
    b.ready("a", task("t", 2000))
    b.round()
    assert b.decisions_of(api.TellEnded) == []
    assert [told.never for _, told in b.decisions_of(api.TellWaiting)] == [False]
