"""The core's door, message by message: what no random walk would show so clearly."""

from __future__ import annotations

import math
from typing import Any

import pytest

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import Hangup, SendDecisions
from master.core.status import document
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, ResourceKind, TaskRequest
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress, StageProgress
from penstock.wire.errors import RpcError

MB = 1_000_000
EXIT = Ended(by=EndedBy.EXIT, exit_status=0)


class Bed:
    """A cluster whose agents do what they are told, unless a test says otherwise."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = Cluster(MasterSettings(**settings))
        self.now = 0.0
        self.sent: list[tuple[str, api.AnyDecision]] = []
        self.other: list[object] = []
        self.numbers: dict[str, int] = {}
        self.answering = True

    def serve(self, event: e.Event) -> list[tuple[str, api.AnyDecision]]:
        """What was decided because of an event; everything is answered at once."""
        before = len(self.sent)
        todo = [event]
        while todo:
            for instruction in self.cluster.handle(todo.pop(0), self.now):
                if isinstance(instruction, SendDecisions):
                    self.sent += [(instruction.node, decision) for decision in instruction.decisions]
                    self.numbers[instruction.node] = instruction.number
                    if self.answering:
                        todo.append(e.Answered(instruction.node, instruction.number, []))
                else:
                    self.other.append(instruction)
        return self.sent[before:]

    def node(self, name: str, **more: Any) -> list[tuple[str, api.AnyDecision]]:
        values: dict[str, Any] = {
            "capacity": Capacity(cores=4, memory_bytes=1000 * MB),
            "load": load(),
            "complete": True,
        }
        return self.serve(e.Said(name, api.Register(protocol=1, node=name, version="0", **{**values, **more})))

    def heartbeat(self, name: str, decided: int | None = None, **more: Any) -> None:
        known = self.numbers.get(name, 0) if decided is None else decided
        self.serve(e.Said(name, api.Heartbeat(load=load(**more), decided=known)))

    def job(self, origin: str, job: str = "j", memory: int = 0, at: float = 0.0, **more: Any) -> list[Any]:
        return self.serve(e.Said(origin, job_state(job, memory, at, **more)))

    def ready(self, origin: str, *tasks: TaskRequest, job: str = "j", opportunistic: bool = False) -> None:
        self.serve(e.Said(origin, api.ReadyTasks(job=job, stage="s", tasks=list(tasks), opportunistic=opportunistic)))

    def round(self, after_s: float = 0.1) -> list[tuple[str, str]]:
        """Runs a round; (task, node) of what was assigned in it."""
        self.now += after_s
        decided = self.serve(e.RoundDue(self.now))
        return [(d.request.task, node) for node, d in decided if isinstance(d, api.Assign)]

    def said(self, kind: type[api.AnyDecision]) -> list[tuple[str, Any]]:
        return [(node, decision) for node, decision in self.sent if isinstance(decision, kind)]


def job_state(job: str, memory: int = 0, at: float = 0.0, **more: Any) -> api.JobState:
    values = {"name": job, "user": "u", "memory_bytes": memory, "priority": 0.0, "submitted_at": at, **more}
    return api.JobState(job=job, **values)


def load(idle: tuple[float, float, float] = (4, 1, 2), **more: Any) -> api.Load:
    values = {"rates": KindAmounts(), "pending": KindAmounts(), **more}
    return api.Load(idle=KindAmounts(*idle), **values)


def task(name: str, memory: int = 0, cpu: float = 1, **more: Any) -> TaskRequest:
    return TaskRequest(task=name, usage=KindAmounts(cpu=cpu * MB), memory_bytes=memory * MB, **more)


def command(name: str, memory: int = 0, cores: float = 0.0, **more: Any) -> TaskRequest:
    return task(name, memory, command=ContainerSpec(argv=("true",), cpu_cores=cores), **more)


def bed(*nodes: str, **settings: Any) -> Bed:
    made = Bed(**settings)
    for name in nodes:
        made.node(name)
    return made


# ---------------------------------------------------------------- placement


def test_a_job_is_admitted_gets_its_priority_once_and_its_tasks_a_node() -> None:
    b = bed("a", "b")
    decided = b.job("a", at=100.0)
    assert [type(d) for _, d in decided] == [api.SetPriority, api.AdmitJob]
    assert decided[0][1].priority == -100.0
    b.ready("a", task("t", nodes=("b",)))
    assert b.round() == [("t", "b")]
    assign = b.said(api.Assign)[0][1]
    assert (assign.origin, assign.user, assign.priority) == ("a", "u", -100.0)
    assert [(node, d.node) for node, d in b.said(api.TellPlaced)] == [("a", "b")]
    b.node("a", jobs=[job_state("j", at=100.0, priority=-100.0, admitted=True)])
    assert len(b.said(api.SetPriority)) == 1, "an agent that knows the priority is not told again"


def test_a_burst_is_not_placed_twice_on_the_same_idle_node() -> None:
    b = bed("a")
    b.answering = False
    b.job("a")
    b.ready("a", *[task(f"t{i}", cpu=1000) for i in range(9)])
    assert len(b.round()) == 4, "four idle cores"
    b.heartbeat("a", decided=0)  # made before the decision arrived: says four idle cores again
    assert b.round() == []
    b.serve(e.Answered("a", b.numbers["a"], []))
    b.heartbeat("a", idle=(0, 1, 2), pending=KindAmounts(cpu=4000.0 * MB))
    assert b.round(1.0) == []
    assert not b.cluster.wants_round, "nothing has changed since"


def test_frameworks_have_one_ept_to_queue_what_was_placed() -> None:
    b = bed("a", ept_s=0.12)
    b.job("a")
    b.ready("a", *[task(f"t{i}", cpu=1000) for i in range(6)])
    assert len(b.round()) == 4
    b.heartbeat("a", pending=KindAmounts(cpu=4000.0 * MB))  # knows of them, but nothing is queued yet: all cores idle
    assert b.round(0.05) == []
    assert b.cluster.wants_round, "it is to be looked at again"
    assert len(b.round(0.1)) == 2


def test_a_refused_task_goes_back_and_is_not_offered_to_that_node_before_it_reports() -> None:
    b = bed("a")
    b.answering = False
    b.job("a")
    b.ready("a", task("t"))
    assert b.round() == [("t", "a")]
    b.serve(e.Answered("a", b.numbers["a"], [api.Refusal(index=0, reason="no room")]))
    assert b.round() == []
    assert document(b.cluster, b.now)["jobs"]["j"]["waits"].startswith("1 tasks of stage s wait for a node: of 1 nodes")
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
    b.serve(e.Said("a", api.TasksDone(job="j", tasks=["t1"])))
    assert b.round() == [("t2", "a")]


def test_others_memory_is_told_apart_from_ours_whatever_is_under_way() -> None:
    b = bed("a", "b")
    b.job("b")
    b.heartbeat("a", promised_memory_bytes=300 * MB)  # 300 MB are somebody else's, all the time
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
    b.serve(e.Said("b", api.TasksDone(job="j", tasks=["t"])))
    b.heartbeat("a", decided=1, promised_memory_bytes=500 * MB)  # crossed the withdrawal
    assert free() == 500, "it is held until the node is known to be rid of it"
    b.serve(e.Answered("a", b.numbers["a"], []))
    assert free() == 700
    b.heartbeat("a", promised_memory_bytes=300 * MB)
    assert free() == 700


def test_a_promotion_counts_at_once_and_is_not_taken_for_others_memory() -> None:
    b = bed("a")
    b.job("a")
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
    b.serve(e.Said("b", api.CommandEnded(job="j", task="c", origin="a", ended=EXIT)))
    assert [(node, d.task, d.node, d.ended) for node, d in b.said(api.TellEnded)] == [("a", "c", "b", EXIT)]
    assert document(b.cluster, b.now)["tasks"] == {"ready": 0, "placed": 0, "ended": {"exit": 1}}


def test_done_at_the_origin_frees_the_node_that_held_it() -> None:
    b = bed("a", "b")
    b.job("a")
    b.ready("a", task("t", 900, nodes=("b",)), task("u", 900, nodes=("b",)))
    assert b.round() == [("t", "b")]
    b.serve(e.Said("a", api.TasksDone(job="j", tasks=["t"])))
    assert [(node, d.task) for node, d in b.said(api.Withdraw)] == [("b", "t")]
    assert b.round() == [("u", "b")]


def test_a_cancelled_command_ends_as_its_node_says() -> None:
    b = bed("a", "b")
    b.job("a")
    b.ready("a", command("c", nodes=("b",)), task("t", 2000))
    b.round()
    b.serve(e.Said("a", api.TasksCancelled(job="j", tasks=["c", "t"])))
    assert [d.task for _, d in b.said(api.TellEnded)] == ["t"]
    how = Ended(by=EndedBy.CANCELLED, cpu_seconds=1.5)
    b.serve(e.Said("b", api.CommandEnded(job="j", task="c", origin="a", ended=how)))
    assert b.said(api.TellEnded)[-1][1].ended == how


# ---------------------------------------------------------------- admission


def test_jobs_wait_for_memory_in_order_and_small_ones_do_not_overtake() -> None:
    b = bed("a")
    b.job("a", "first", 600 * MB, at=1)
    b.job("a", "large", 900 * MB, at=2)
    b.job("a", "small", 100 * MB, at=3)
    b.job("a", "nothing", 0, at=4)
    assert [d.job for _, d in b.said(api.AdmitJob)] == ["first", "nothing"]
    told = {d.job: d.why for _, d in b.said(api.TellWaiting)}
    assert told["large"] == "it wants 858 MiB reserved, 381 MiB of 954 MiB is not reserved"
    assert told["small"] == "job large (large) stands before it and waits, too"
    b.serve(e.Said("a", api.JobEnded(job="first")))
    assert [d.job for _, d in b.said(api.AdmitJob)] == ["first", "nothing", "large", "small"]


def test_a_job_larger_than_the_cluster_learns_why_and_keeps_nobody_waiting() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.job("a", "huge", 3000 * MB, at=1)
    b.job("a", "next", 100 * MB, at=2)
    assert [d.job for _, d in b.said(api.AdmitJob)] == ["next"]
    assert "the whole cluster has 954 MiB" in b.said(api.TellWaiting)[0][1].why
    b.ready("a", task("t"), job="huge")
    b.round()
    b.heartbeat("a")
    b.round(4.0)
    assert b.said(api.TellEnded) == [], "a node may still join"
    b.heartbeat("a")
    b.round(2.0)
    ended = b.said(api.TellEnded)[0][1].ended
    assert ended.by is EndedBy.REFUSED
    assert "the whole cluster has 954 MiB" in ended.reason


def test_a_task_that_no_node_can_ever_hold_ends_with_the_reason() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.job("a")
    b.ready("a", task("t", 2000), task("u", nodes=("nowhere",)), task("v", 900))
    b.round()
    b.heartbeat("a")
    b.round(4.0)
    b.heartbeat("a")
    b.round(4.0)
    reasons = {d.task: d.ended.reason for _, d in b.said(api.TellEnded)}
    assert reasons == {
        "t": "no node that it may use could ever hold 2000000000 bytes and 0 cores",
        "u": "none of its nodes (nowhere) is in the cluster",
    }


# ---------------------------------------------------------------- opportunistic work


def test_slack_is_t_alloc_of_the_capacity_less_what_is_used_and_launched() -> None:
    b = Bed(promotion=False)
    b.node("a", t_alloc=0.5, load=load(used_memory_bytes=100 * MB))  # slack: 400 MB, 2 cores
    b.job("a")
    b.ready("a", *[command(f"o{i}", 150) for i in range(4)], opportunistic=True)
    b.answering = False
    assert [name for name, _ in b.round()] == ["o0", "o1"], "the third would need 450 MB, and a third core"
    b.heartbeat("a", decided=0, used_memory_bytes=100 * MB)
    assert b.round() == [], "what was launched since the report counts in full"
    b.serve(e.Answered("a", b.numbers["a"], []))
    b.heartbeat("a", used_memory_bytes=120 * MB, used_cores=1.5, idle=(2, 1, 2))
    assert b.round() == [("o2", "a")]


def test_a_node_that_tunes_its_t_alloc_says_so_with_its_load() -> None:
    b = Bed(promotion=False)
    b.node("a", t_alloc=0.5, load=load(used_memory_bytes=100 * MB))
    b.job("a")
    b.ready("a", *[command(f"o{i}", 150) for i in range(4)], opportunistic=True)
    b.heartbeat("a", used_memory_bytes=100 * MB, t_alloc=0.3)  # slack: 200 MB, 1.2 cores
    assert [name for name, _ in b.round()] == ["o0"]
    b.heartbeat("a", used_memory_bytes=100 * MB, used_cores=1.0, t_alloc=math.nan)  # an agent's number is not trusted
    assert b.cluster.nodes["a"].t_alloc == 0.3


def test_opportunistic_work_is_promoted_where_it_is_before_regular_work_is_placed() -> None:
    b = bed("a")
    b.heartbeat("a", promised_memory_bytes=800 * MB, used_memory_bytes=100 * MB)
    b.job("a")
    b.ready("a", command("o", 300), opportunistic=True)
    assert b.round() == [("o", "a")]
    assert b.round() == []
    assert b.said(api.Promote) == [], "800 of 1000 MB are promised"
    b.ready("a", task("t", 400))
    b.heartbeat("a", promised_memory_bytes=400 * MB)
    assert b.round() == [], "600 MB are free, of which promotion takes 300 first"
    assert [(node, d.task) for node, d in b.said(api.Promote)] == [("a", "o")]
    b.serve(e.Said("a", api.CommandEnded(job="j", task="o", origin="a", ended=EXIT)))
    b.heartbeat("a", promised_memory_bytes=400 * MB)
    assert b.round() == [("t", "a")]


def test_a_refused_promotion_is_tried_again_after_a_report() -> None:
    b = bed("a")
    b.job("a")
    b.ready("a", command("o", 300), opportunistic=True)
    b.round()
    b.answering = False
    b.heartbeat("a")
    b.round()
    assert len(b.said(api.Promote)) == 1
    b.serve(e.Answered("a", b.numbers["a"], [api.Refusal(index=0, reason="no")]))
    b.ready("a", task("t", 2000))
    b.round()
    assert len(b.said(api.Promote)) == 1
    b.heartbeat("a")
    b.round()
    assert len(b.said(api.Promote)) == 2


def test_an_opportunistic_task_waits_for_a_free_slot_of_its_kind() -> None:
    b = Bed()
    b.node("a", load=load(idle=(4, 0, 2)))
    b.job("a")
    b.ready("a", command("d", command_kind=ResourceKind.DISK), opportunistic=True)
    assert b.round() == []
    b.heartbeat("a", idle=(4, 1, 2))
    assert b.round() == [("d", "a")]


# ---------------------------------------------------------------- nodes that go


def test_a_node_that_comes_back_in_time_has_lost_nothing() -> None:
    b = bed("a", "b", node_timeout_s=5.0)
    b.job("a")
    b.ready("a", task("t", 100, nodes=("b",)))
    b.round()
    b.serve(e.NodeAway("b"))
    b.heartbeat("a")
    b.round(4.0)
    placed = api.PlacedTask(job="j", stage="s", task="t", origin="a", remaining=KindAmounts(), memory_bytes=100 * MB)
    b.node("b", placed=[placed], load=load(promised_memory_bytes=100 * MB))
    b.heartbeat("a")
    b.round(4.0)
    assert b.said(api.TellEnded) == []
    assert b.said(api.Withdraw) == []
    assert document(b.cluster, b.now)["nodes"]["b"]["memory_free_bytes"] == 900 * MB


def test_a_lost_node_loses_framework_tasks_and_commands_run_again_three_times() -> None:
    b = bed("a", "b", node_timeout_s=5.0)
    b.job("a")
    b.ready("a", task("t", nodes=("b",)), command("c", nodes=("b",)))
    for attempt in range(3):
        assert ("c", "b") in b.round()
        b.serve(e.NodeAway("b"))
        b.heartbeat("a")
        b.round(4.0)
        b.heartbeat("a")
        b.round(2.0)
        ends = [(d.task, d.ended.by) for _, d in b.said(api.TellEnded)]
        assert ends == [("t", "lost"), ("c", "lost")][: 1 + (attempt == 2)]
        b.node("b")
    assert "3 times" in b.said(api.TellEnded)[-1][1].ended.reason


def test_a_silent_node_is_hung_up_on() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.round(4.0)
    assert not [i for i in b.other if isinstance(i, Hangup)]
    b.round(2.0)
    assert [i.node for i in b.other if isinstance(i, Hangup)] == ["a"]
    assert "a" not in b.cluster.nodes


def test_a_job_whose_origin_is_lost_is_over() -> None:
    b = bed("a", "b", node_timeout_s=5.0)
    b.job("a", memory=500 * MB)
    b.ready("a", command("c", nodes=("b",)))
    b.round()
    b.serve(e.NodeAway("a"))
    b.heartbeat("b")
    b.round(4.0)
    b.heartbeat("b")
    b.round(2.0)
    assert [(node, d.task) for node, d in b.said(api.Withdraw)] == [("b", "c")]
    assert document(b.cluster, b.now)["memory"]["reserved_bytes"] == 0


def test_state_is_rebuilt_from_registrations_in_any_order() -> None:
    placed = api.PlacedTask(
        job="j", stage="s", task="t", origin="a", remaining=KindAmounts(cpu=5.0), memory_bytes=100 * MB
    )
    stages = [StageProgress(stage="s", tasks=3, done=1), StageProgress(stage="r", tasks=1, after=["s"])]
    state = job_state("j", 300 * MB, 7.0, priority=-7.0, admitted=True, stages=stages)
    awaited = api.AwaitedTask(job="j", stage="s", request=task("t", 100), node="b")
    more = {
        "jobs": [state],
        "awaited": [awaited],
        "ready": [api.ReadyTasks(job="j", stage="s", tasks=[task("u", 100)])],
    }
    here = {"placed": [placed], "load": load(promised_memory_bytes=100 * MB)}
    for order in (("a", "b"), ("b", "a")):
        b = Bed()
        for name in order:
            b.node(name, **(more if name == "a" else here))
        status = document(b.cluster, b.now)
        assert status["jobs"]["j"] | {"waits": ""} == {
            "name": "j", "user": "u", "origin": "a", "state": "admitted", "waits": "", "memory_bytes": 300 * MB,
            "submitted_at": 7.0, "ready": 1, "placed": 1, "stages": {"s": 1},
            "progress": [{"stage": "s", "tasks": 3, "done": 1}, {"stage": "r", "tasks": 1, "after": ["s"]}],
            "priority": -7.0, "service_container_s": 0.0, "slots": 0,
        }  # fmt: skip
        assert status["nodes"]["b"]["memory_free_bytes"] == 900 * MB
        assert status["memory"] == {"reservable_bytes": 2000 * MB, "reserved_bytes": 300 * MB}
        assert b.sent == [], "nothing has to be said"
        assert [name for name, _ in b.round()] == ["u"]


def test_large_environments_are_sent_in_several_requests() -> None:
    b = bed("a")
    b.job("a")
    spec = ContainerSpec(argv=("true",), env={"X": "x" * 300_000})
    b.ready("a", *[TaskRequest(task=f"c{i}", usage=KindAmounts(), command=spec) for i in range(4)])
    b.answering = False
    instructions = b.cluster.handle(e.RoundDue(1.0), 1.0)
    sizes = [len(i.decisions) for i in instructions if isinstance(i, SendDecisions)]
    assert sizes == [3, 1]
    assert [held.assigned_in for held in b.cluster.nodes["a"].held.values()] == [2, 2, 2, 3]


# ---------------------------------------------------------------- what makes no sense


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
    before = document(b.cluster, 0.0)
    with pytest.raises(RpcError) as caught:
        b.serve(e.Said("a", message))
    assert caught.value.body.field == field
    assert document(b.cluster, 0.0) == before


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"protocol": 2}, "protocol"),
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
    with pytest.raises(RpcError) as caught:
        cluster.handle(e.Said("a", api.Register(**{**values, **more})), 0.0)
    assert caught.value.body.field == field
    assert cluster.nodes == {}


def test_only_the_origin_speaks_for_a_job() -> None:
    b = bed("a", "b")
    b.job("a")
    for message in (
        api.JobEnded(job="j"),
        api.ReadyTasks(job="j", stage="s", tasks=[task("t")]),
        job_state("j"),
    ):
        with pytest.raises(RpcError):
            b.serve(e.Said("b", message))
    with pytest.raises(RpcError):
        b.serve(e.Said("stranger", api.Heartbeat(load=load())))


def test_numbers_that_are_none_do_not_reach_the_arithmetic() -> None:
    b = Bed()
    nan = float("nan")
    b.node("a", load=load(idle=(nan, 1, 2), rates=KindAmounts(nan, -1.0, 0.0), pending=KindAmounts(nan, nan, -5.0)))
    b.job("a")
    b.ready("a", task("t"))
    assert b.round() == [("t", "a")]


def test_progress_is_the_origin_s_to_say_and_replaces_what_was_said() -> None:
    b = bed("a", "b")
    b.job("a")
    for done in (1, 2):
        b.serve(e.Said("a", Progress(job="j", stages=[StageProgress(stage="s", tasks=3, done=done)])))
    assert b.cluster.jobs["j"].work.told == [StageProgress(stage="s", tasks=3, done=2)]
    with pytest.raises(RpcError, match="belongs to node"):
        b.serve(e.Said("b", Progress(job="j", stages=[])))


# ---------------------------------------------------------------- jobs on several hosts


def test_a_node_that_joins_a_job_hears_of_its_place() -> None:
    b = bed("a", "b")
    b.job("a", at=100.0)
    assert b.serve(e.Said("b", api.JoinJob(job="j", user="u"))) == []
    assert b.cluster.joined("j") == api.JobJoined(name="j", user="u", priority=-100.0)
    assert set(b.cluster.jobs["j"].hosts) == {"a", "b"}


def test_a_job_that_is_unknown_or_somebody_elses_is_not_joined() -> None:
    b = bed("a", "b")
    b.job("a")
    for job, user, says in (("k", "u", "unknown job 'k'"), ("j", "other", "belongs to u")):
        with pytest.raises(RpcError, match=says):
            b.serve(e.Said("b", api.JoinJob(job=job, user=user)))
    b.serve(e.Said("b", api.JoinJob(job="j", user="")))  # an operator
    with pytest.raises(RpcError, match="unknown job"):
        b.serve(e.Said("a", api.JoinJob(job="j", user="u")))  # its origin, which must have forgotten it
    assert "b" in b.cluster.jobs["j"].hosts
