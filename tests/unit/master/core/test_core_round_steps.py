"""The steps of a round, one by one: plan, order, admit, place, and opportunistic work by the same fairness."""

from __future__ import annotations

import pytest

from master.core import events as e
from master.core.guarantees import NothingPromised
from penstock.model import KindAmounts, TaskRequest
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress, StageProgress
from tests.unit.master.cluster_bed import MB, Bed, bed, command, load, task
from tests.unit.master.core.test_core_plan_follower import Plan


def assigned(b: Bed, since: int = 0) -> list[tuple[str, str]]:
    """(job, task) in the order of decision on one node."""
    return [(d.job, d.request.task) for _, d in b.sent[since:] if isinstance(d, api.Assign)]


def test_the_plan_s_promises_come_first() -> None:
    for plan, first in ((NothingPromised(), "early"), (Plan(1.0), "late")):
        b = bed("a", ordering="fifo")
        b.cluster.guarantees.plan = plan
        b.job("a", "early", at=1.0)
        b.job("a", "late", at=2.0, reservation="r")
        for job in ("early", "late"):
            b.ready("a", *[task(f"t{i}", 600) for i in range(2)], job=job)
        b.round()
        assert assigned(b) == [(first, "t0")]


def test_shares_are_kept_to_and_not_bypassed_by_a_whole_stage() -> None:
    for ordering, given in (("ejf", {"early": 4}), ("fair", {"early": 2, "late": 2}), ("drf", {"early": 2, "late": 2})):
        b = bed("a", ordering=ordering, share_chunk_tasks=1)
        b.job("a", "early", at=1.0, user="eve")
        b.job("a", "late", at=2.0, user="bob")
        b.ready("a", *[task(f"t{i}", 250) for i in range(4)], job="early")
        b.ready("a", *[task(f"t{i}", 250) for i in range(9)], job="late")
        b.round()
        jobs = [job for job, _ in assigned(b)]
        assert {job: jobs.count(job) for job in dict.fromkeys(jobs)} == given


def test_drf_charges_the_tenant_that_the_settings_name() -> None:
    b = bed("a", ordering="drf", share_chunk_tasks=1, tenants={"eve": "r/eve", "bob": "r/bob"}, weights={"p": 2.0})
    for at, user in enumerate(("eve", "bob", "p")):
        b.job("a", f"of-{user}", at=float(at), user=user)
        b.ready("a", *[task(f"t{i}", 110) for i in range(9)], job=f"of-{user}")
    b.heartbeat("a", idle=(99, 1, 2))
    b.round()
    jobs = [job for job, _ in assigned(b)]
    assert [jobs.count(f"of-{user}") for user in ("eve", "bob", "p")] == [2, 1, 6]


def test_opportunistic_work_is_shared_by_the_same_fairness_apart_from_regular_work() -> None:
    b = bed("a", ordering="fair")
    b.job("a", "early", at=1.0)
    b.job("a", "late", at=2.0)
    b.ready("a", command("regular", 900), job="early")
    b.round()
    b.heartbeat("a", used_memory_bytes=0, promised_memory_bytes=900 * MB)
    since = len(b.sent)
    for job in ("early", "late"):
        b.ready("a", *[command(f"o{i}", 10, cores=0.5) for i in range(9)], job=job, opportunistic=True)
    b.round()
    jobs = [job for job, _ in assigned(b, since)]
    assert jobs.count("early") == jobs.count("late") > 0, "its regular work does not count"


def test_the_ordering_orders_admission_and_a_job_that_has_waited_too_long_goes_first() -> None:
    b = bed("a", ordering="srjf", admission_wait_max_s=60.0)
    b.job("a", "holds", 600 * MB, at=1.0)
    b.job("a", "large", 900 * MB, at=2.0)
    b.serve(e.Received("a", Progress(job="large", stages=[StageProgress(stage="s", tasks=9, input_bytes=10**9)])))
    for number in range(3):
        b.now = 25.0 * (number + 1)
        b.job("a", f"small{number}", 300 * MB, at=b.now)
        progress = Progress(job=f"small{number}", stages=[StageProgress(stage="s", tasks=1, input_bytes=1)])
        b.serve(e.Received("a", progress))
        b.round()
        if number < 2:
            assert b.cluster.jobs[f"small{number}"].admitted, "it has less left"
            b.serve(e.Received("a", api.JobEnded(job=f"small{number}")))
    assert not b.cluster.jobs["small2"].admitted, "large has waited for a minute, and is waited for"
    b.serve(e.Received("a", api.JobEnded(job="holds")))
    assert b.cluster.jobs["large"].admitted


def test_a_limit_on_running_jobs() -> None:
    b = bed("a", max_running_jobs=2)
    for number in range(4):
        b.job("a", f"j{number}", at=float(number))
    assert [d.job for _, d in b.decisions_of(api.AdmitJob)] == ["j0", "j1"]
    assert {d.why for _, d in b.decisions_of(api.TellWaiting)} == {"the cluster runs 2 jobs, which is max_running_jobs"}
    b.serve(e.Received("a", api.JobEnded(job="j0")))
    assert [d.job for _, d in b.decisions_of(api.AdmitJob)] == ["j0", "j1", "j2"]


@pytest.mark.parametrize("aware", [True, False])
def test_the_network_can_be_left_out_of_account(aware: bool) -> None:
    b = bed("a", "b", network_aware=aware)
    b.heartbeat("a", pending=KindAmounts(network=1e12))
    b.heartbeat("b", pending=KindAmounts(cpu=1.0))
    b.job("a")
    b.ready("a", TaskRequest(task="t", usage=KindAmounts(network=1.0 * MB), memory_bytes=1))
    assert b.round() == ([("t", "b")] if aware else [("t", "a")])


def test_estimated_memory_is_held() -> None:
    b = bed("a", memory_estimate=True)
    b.job("a", "j", 400 * MB)
    b.ready("a", task("t", cpu=300), task("u", cpu=100))
    b.round()
    held = b.cluster.nodes["a"].held
    assert {key[1]: each.memory_bytes for key, each in held.items()} == {"t": 300 * MB, "u": 100 * MB}
    assert all(d.request.memory_bytes for _, d in b.decisions_of(api.Assign)), "the node holds it, too"


def test_rows_follow_their_nodes_when_one_is_lost() -> None:
    b = bed("a", "b", "c")
    b.job("c")
    b.serve(e.NodeAway("a"))
    b.now = 20.0
    for name in ("b", "c"):
        b.serve(e.Received(name, api.Heartbeat(load=load(), decided=b.numbers.get(name, 0))))
    b.round()
    assert [node.name for node in b.cluster.table.nodes] == ["b", "c"]
    b.ready("c", task("t", 500, nodes=("c",)))
    assert b.round() == [("t", "c")]
    assert b.cluster.table.memory_free[1] == 1000 * MB or "c" in b.cluster.table._touched


def test_jobs_are_not_ranked_for_tasks_for_which_no_node_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bed("a", ordering="ejf")
    b.heartbeat("a", promised_memory_bytes=900 * MB)
    b.job("a", "early", at=1.0)
    b.job("a", "late", at=2.0)
    b.ready("a", *[task(f"t{i}", 200) for i in range(3)], job="early")
    b.ready("a", command("c", cores=3.5), command("d", memory=150), job="late")
    b.heartbeat("a", promised_memory_bytes=900 * MB, promised_cores=1.0)
    assert b.round() == []
    asked: list[float] = []
    rank = b.cluster.order.rank
    monkeypatch.setattr(b.cluster.order, "rank", lambda now: (asked.append(now), rank(now))[1])

    b.heartbeat("a", promised_memory_bytes=900 * MB, promised_cores=1.0)
    assert b.round() == []
    assert asked == [], "no node has room: the order makes no difference"
    assert b.cluster.jobs["early"].waits == "3 tasks of stage s wait for a node: of 1 node 1 lacks memory"
    assert b.cluster.jobs["late"].waits == "2 tasks of stage s wait for a node: of 1 node 1 lacks unpromised cores"

    b.heartbeat("a", promised_memory_bytes=900 * MB)
    assert b.round() == [("c", "a")]
    assert len(asked) == 1
