"""Regular room comes before slack (UBIS, Algorithm 1); the tasks that may have which, and the slack of a node."""

from __future__ import annotations

from typing import Any

import pytest

from master.core import events as e
from master.explain.recording import record
from master.explain.why import JobExplainer
from master.status import status_document
from penstock.model import ContainerSpec, Ended, EndedBy, KindAmounts, ResourceKind, TaskRequest
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import MB, Bed, bed, command, job_state, load, placed_task, task

PREEMPTED = Ended(by=EndedBy.PREEMPTED, reason="memory was wanted")


def placed(b: Bed, since: int = 0) -> dict[str, bool]:
    """Task → whether it was placed on slack."""
    return {d.request.task: d.opportunistic for _, d in b.sent[since:] if isinstance(d, api.Assign)}


def allow(b: Bed, *tasks: TaskRequest, opportunistic: Any = True, job: str = "j") -> None:
    ready = api.ReadyTasks(job=job, stage="s", tasks=list(tasks), opportunistic=opportunistic)
    b.serve(e.Received("a", ready))


def test_slack_is_for_tasks_without_regular_room() -> None:
    b = bed("a")
    b.job("a")
    allow(b, *[command(f"c{i}", 300, cores=0.5) for i in range(5)])
    b.heartbeat("a", promised_memory_bytes=300 * MB)  # 700 MB are not promised, 900 are unused
    b.round()
    assert placed(b) == {"c0": False, "c1": False, "c2": True}, "the same round gives both, and neither too much"
    b.heartbeat("a", promised_memory_bytes=900 * MB, used_memory_bytes=100 * MB)
    b.round()
    assert placed(b) == {"c0": False, "c1": False, "c2": True, "c3": True, "c4": True}


def test_work_that_wants_nothing_but_slack_is_neither_regular_nor_promoted() -> None:
    b = bed("a")
    b.job("a")
    allow(b, command("c", 300), opportunistic="only")
    b.round()
    assert placed(b) == {"c": True}
    b.heartbeat("a", used_memory_bytes=1)
    b.round()
    assert b.decisions_of(api.Promote) == []
    allow(b, command("d", 950), opportunistic="only")
    b.round()
    said = status_document(b.cluster, b.now).jobs["j"].waits
    assert said == "1 task of stage s waits for slack: of 1 node 1 lacks memory"


def test_a_job_on_slack_alone_waits_for_slack_and_not_for_its_admission() -> None:
    b = bed("a")
    b.job("a", memory=2000 * MB)
    b.round()
    assert JobExplainer.of(b.cluster).document("j", b.now).waits.startswith("it wants 1.86 GiB reserved")
    allow(b, command("c", 300), command("d", 950), opportunistic="only")
    b.round()
    lacking = "1 task of stage s waits for slack: of 1 node 1 lacks memory"
    for said in (status_document(b.cluster, b.now).jobs["j"], JobExplainer.of(b.cluster).document("j", b.now)):
        assert said.waits == lacking
    b.cluster.admission.look(b.now)  # what comes between two rounds does not hide the reason
    assert b.cluster.jobs["j"].waits == lacking
    assert b.cluster.jobs["j"].standing == "running", "one of its tasks runs"
    b.serve(e.Received("a", api.TasksCancelled(job="j", tasks=["d"])))
    b.round()
    assert b.cluster.jobs["j"].waits == "", "all that it has runs"


@pytest.mark.parametrize("memory", [0, 2000], ids=["admitted", "not admitted"])
def test_a_job_on_slack_alone_that_waits_for_the_processor_has_that_reason(memory: int) -> None:
    b = bed("a")
    b.job("a", memory=memory * MB)
    b.round()
    b.heartbeat("a", used_cores=4.0)  # all of them
    allow(b, command("c", 300, cores=1.0), opportunistic="only")
    b.round()
    lacking = "1 task of stage s waits for slack: of 1 node 1 lacks cpu"
    for said in (status_document(b.cluster, b.now).jobs["j"], JobExplainer.of(b.cluster).document("j", b.now)):
        assert said.waits == lacking
    (stage,) = JobExplainer.of(b.cluster).document("j", b.now).stages
    assert stage.slack_lacks == {"cpu": 1}, "and no memory"
    b.cluster.admission.look(b.now)  # what comes between two rounds does not hide the reason
    assert b.cluster.jobs["j"].waits == lacking
    b.heartbeat("a", used_cores=1.0)
    b.round()
    assert placed(b) == {"c": True}
    assert b.cluster.jobs["j"].waits == "", "all that it has runs"


def test_slack_needs_no_admission_and_regular_room_does() -> None:
    b = bed("a")
    b.job("a", "first", 900 * MB, at=1.0)
    b.job("a", "second", 900 * MB, at=2.0)
    allow(b, command("c", 100), job="second")
    b.round()
    assert placed(b) == {"c": True}
    b.serve(e.Received("a", api.JobEnded(job="first")))
    b.heartbeat("a")
    b.round()
    assert [d.task for _, d in b.decisions_of(api.Promote)] == ["c"], "its job is admitted by now"


def test_a_preempted_task_may_have_either_the_next_time() -> None:
    b = bed("a")
    b.job("a")
    b.heartbeat("a", promised_memory_bytes=900 * MB)
    allow(b, command("c", 300))
    b.round()
    b.serve(e.Received("a", api.CommandEnded(job="j", task="c", origin="a", ended=PREEMPTED)))
    b.heartbeat("a", promised_memory_bytes=0)
    since = len(b.sent)
    b.round()
    assert placed(b, since) == {"c": False}


def test_a_promoted_task_that_is_lost_still_allows_slack() -> None:
    b = bed("a", "b")
    b.job("a")
    b.heartbeat("a", promised_memory_bytes=950 * MB, used_memory_bytes=950 * MB)
    b.heartbeat("b", promised_memory_bytes=900 * MB)
    allow(b, command("c", 300))
    b.round()
    b.heartbeat("b")
    b.round()
    assert [d.task for _, d in b.decisions_of(api.Promote)] == ["c"]
    b.serve(e.Received("b", api.CommandEnded(job="j", task="c", origin="a", ended=PREEMPTED)))
    b.heartbeat("b", promised_memory_bytes=900 * MB)
    since = len(b.sent)
    b.round()
    assert placed(b, since) == {"c": True}


def test_a_master_that_restarted_learns_the_permissions_of_a_placed_task() -> None:
    b = Bed()
    b.node("b", placed=[placed_task("c", memory=300, remaining=KindAmounts(cpu=1.0), opportunistic=True)])
    awaited = api.AwaitedTask(job="j", stage="s", request=command("c", 300), node="b", opportunistic="only")
    b.node("a", jobs=[job_state("j")], awaited=[awaited])
    b.heartbeat("b")
    b.round()
    assert b.decisions_of(api.Promote) == []
    assert b.cluster.jobs["j"].placed() == (0, 1)


def test_a_promoted_command_takes_a_slot_and_waits_for_one() -> None:
    b = bed("a")
    b.job("a")
    b.heartbeat("a", promised_memory_bytes=900 * MB)
    allow(b, *[command(f"c{i}", 150) for i in range(3)])
    b.round()
    assert placed(b) == {"c0": True, "c1": True, "c2": True}
    b.heartbeat("a", idle=(2, 1, 2))  # others run in two of the four slots
    b.round()
    assert [d.task for _, d in b.decisions_of(api.Promote)] == ["c0", "c1"]


def test_opportunistic_commands_keep_no_slot_from_regular_work() -> None:
    b = bed("a")
    b.job("a")
    allow(b, *[command(f"o{i}", 10, cores=0.1) for i in range(8)], opportunistic="only")
    b.round()
    assert len(placed(b)) == 8, "there are four slots, of which they take none"
    allow(b, *[task(f"t{i}") for i in range(4)], opportunistic=False)
    b.answering = False
    b.round()
    assert [name for name, slack in placed(b).items() if not slack] == ["t0", "t1", "t2", "t3"]


@pytest.mark.parametrize("kind", [ResourceKind.DISK, ResourceKind.NETWORK])
def test_disk_and_network_are_slack_as_cpu_is(kind: ResourceKind) -> None:
    busy = {f"{kind}_busy": 0.9}
    b = bed("a")
    b.job("a")
    b.heartbeat("a", **busy)
    spec = ContainerSpec(argv=("true",), cpu_cores=0.1)
    work = KindAmounts.single(kind, 1.0)
    commands = [TaskRequest(task=f"c{i}", usage=work, command=spec, command_kind=kind) for i in range(5)]
    allow(b, *commands, opportunistic="only")
    framework = TaskRequest(task="t", usage=KindAmounts(cpu=1.0))
    allow(b, framework, opportunistic="only")
    b.round()
    assert placed(b) == {"t": True}, "its monotasks use the CPU alone; the use of commands is unknown"
    b.heartbeat("a", **{f"{kind}_busy": 0.2})
    since = len(b.sent)
    b.round()
    slots = 1 if kind is ResourceKind.DISK else 2  # 0.7 or 1.4 are left, and each counts as a whole one
    assert len(placed(b, since)) == slots
    b.heartbeat("a", decided=0)
    assert b.round() == [], "launches since the sample count in full"


def test_a_task_too_large_for_slack_is_not_refused_where_regular_room_could_hold_it() -> None:
    b = Bed(node_timeout_s=5.0)
    b.node("a", t_alloc=0.5, load=load(promised_memory_bytes=900 * MB))
    b.job("a")
    allow(b, command("either", 800))
    allow(b, command("slack", 800), opportunistic="only")
    for _ in range(3):
        b.round()
        b.now += 4.0
        b.heartbeat("a", promised_memory_bytes=900 * MB)
    assert [(d.task, d.ended.by) for _, d in b.decisions_of(api.TellEnded)] == [("slack", EndedBy.REFUSED)]


def test_work_that_may_run_on_slack_is_explained_as_regular_work_too() -> None:
    b = bed("a")
    b.job("a")
    b.heartbeat("a", promised_memory_bytes=900 * MB, used_memory_bytes=950 * MB)
    allow(b, command("c", 300))
    b.round()
    assert status_document(b.cluster, b.now).jobs["j"].waits.endswith("of 1 node 1 lacks memory")
    (stage,) = JobExplainer.of(b.cluster).document("j", b.now).stages
    assert (stage.opportunistic, stage.lacks, stage.slack_lacks) == (True, {"memory": 1}, {"memory": 1})
    (job,) = record(b.cluster, b.now).jobs
    assert [one.task for one in job.stages["s"]] == ["c"]


def test_a_command_without_slack_waits_where_a_node_has_room_for_it() -> None:
    b = bed("a", "b")
    b.job("a")
    full = {"promised_memory_bytes": 1000 * MB, "used_memory_bytes": 1000 * MB}
    b.heartbeat("a", **full)
    b.heartbeat("b", **full, opportunistic_queue_free=2)
    allow(b, *[command(f"c{i}", 100) for i in range(4)], opportunistic="only")
    allow(b, task("t", 100), opportunistic="only")
    assert b.round() == [("c0", "b"), ("c1", "b")], "the monotasks of a framework's task would not be held back"
    b.heartbeat("b", **full, opportunistic_queue_free=2, decided=0)
    assert b.round() == [], "the report does not know of those two"
    b.heartbeat("b", **full, opportunistic_queue_free=1)
    assert b.round() == [("c2", "b")]
    assert b.sent[-2][1].why.startswith("ubis: no slack; one of 1 place ")
