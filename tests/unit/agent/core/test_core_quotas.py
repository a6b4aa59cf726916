"""What one user may queue, hold and have promised: one clear refusal each; others and operators are not meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core.settings import NodeSettings, UserQuotas
from penstock.model import Capacity, ContainerSpec, KindAmounts, Limits, MonotaskSpec, ResourceKind, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Cancel, JobRef, Launch, Place, RegisterJob, Resize, Submit, TaskRefs
from penstock.wire.errors import ErrorCode, RpcError

EVE, MAX, ROOT = 1, 2, 3
QUOTAS = UserQuotas(jobs=2, queued=3, tasks=2, containers=2, cores=1.5, memory_bytes=10**6, pids=100)


@pytest.fixture
def node() -> Node:
    capacity = Capacity(cores=8, memory_bytes=10**9, disk_slots=1, network_slots=1)
    made = Node(NodeSettings(node="n", instance="i", capacity=capacity, has_master=True, quotas=QUOTAS))
    for session, user, operator in ((EVE, "eve", False), (MAX, "max", False), (ROOT, "root", True)):
        made.handle(e.SessionOpened(session, user, session, "", operator), 0.0)
    return made


def job(node: Node, session: int) -> str:
    node.handle(e.JobRegistered(session, RegisterJob(name="x"), 0.0), 0.0)
    return list(node.jobs)[-1]


def submit(node: Node, session: int, name: str, *ids: int) -> None:
    specs = [MonotaskSpec(id=one, kind=ResourceKind.DISK, input_bytes=10**6) for one in ids]
    node.handle(e.Asked(m.SUBMIT, session, Submit(job=name, monotasks=specs)), 0.0)


def place(node: Node, session: int, name: str, *tasks: str) -> None:
    requests = [TaskRequest(task=task, usage=KindAmounts(cpu=1.0)) for task in tasks]
    node.handle(e.Asked(m.PLACE, session, Place(job=name, stage="s", tasks=requests, opportunistic=False)), 0.0)


def launch(node: Node, session: int, *, cores: float = 0.0, memory_bytes: int = 0, opportunistic: bool = False) -> None:
    spec = ContainerSpec(argv=("x",), cpu_cores=cores, memory_bytes=memory_bytes, opportunistic=opportunistic)
    node.handle(e.Asked(m.LAUNCH, session, Launch(container=spec)), 0.0)


def launch_with_pids(node: Node, session: int, pids: int | None) -> None:
    node.handle(
        e.Asked(m.LAUNCH, session, Launch(container=ContainerSpec(argv=("x",), limits=Limits(pids_max=pids)))), 0.0
    )


def refused(what: Callable[[], None], *parts: str) -> None:
    with pytest.raises(RpcError) as caught:
        what()
    assert caught.value.code is ErrorCode.REFUSED
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_jobs(node: Node) -> None:
    first = job(node, EVE)
    job(node, EVE)
    refused(lambda: job(node, EVE) and None, "eve has 2 jobs registered; user_max_jobs is 2", "end one first", "raise")
    job(node, MAX)
    for _ in range(3):
        job(node, ROOT)
    node.handle(e.Asked(m.END_JOB, EVE, JobRef(job=first)), 0.0)
    job(node, EVE)


def test_joining_is_not_one_more(node: Node) -> None:
    first = job(node, EVE)
    job(node, EVE)
    node.handle(e.SessionOpened(4, "eve", 1, ""), 0.0)
    node.handle(e.JobRegistered(4, RegisterJob(name="x", job=first), 0.0), 0.0)


def test_queued_monotasks_of_all_jobs_together(node: Node) -> None:
    one, other, theirs = job(node, EVE), job(node, EVE), job(node, MAX)
    submit(node, EVE, one, 1, 2, 3)  # one of them is granted at once
    submit(node, EVE, other, 1)
    refused(lambda: submit(node, EVE, other, 2), "eve has 3 monotasks queued, and 1 more asked; user_max_queued is 3")
    assert node.queues.job_counts(other)["queued"] == 1, "all of a request, or none"
    submit(node, MAX, theirs, 1, 2, 3)
    node.handle(e.Asked(m.CANCEL, EVE, Cancel(job=one, ids=[3])), 0.0)
    submit(node, EVE, other, 2)


def test_tasks_that_wait_or_run(node: Node) -> None:
    one, theirs = job(node, EVE), job(node, MAX)
    place(node, EVE, one, "a", "b")
    refused(
        lambda: place(node, EVE, one, "c"), "eve has 2 tasks that wait or run, and 1 more asked; user_max_tasks is 2"
    )
    place(node, MAX, theirs, "a")
    node.handle(e.Asked(m.TASKS_DONE, EVE, TaskRefs(job=one, tasks=["a"])), 0.0)
    place(node, EVE, one, "c")


def test_containers_and_what_they_are_promised(node: Node) -> None:
    launch(node, EVE, cores=1.0, memory_bytes=6 * 10**5)
    refused(lambda: launch(node, EVE, cores=0.6), "1 core promised, and 0.6 more asked; user_max_cores is 1.5")
    refused(lambda: launch(node, EVE, memory_bytes=5 * 10**5), "user_max_memory_bytes is", "run it opportunistic")
    launch(node, EVE, cores=0.6, opportunistic=True)  # promised nothing
    refused(lambda: launch(node, EVE), "eve has 2 containers; user_max_containers is 2", "wait until one ends")
    refused(lambda: launch(node, EVE, opportunistic=True), "user_max_containers is 2")
    launch(node, MAX, cores=1.5)
    launch(node, ROOT, cores=3.0)
    assert len(node.containers.live) == 4, "what is refused leaves nothing behind"


def test_adopting_counts_as_starting(node: Node) -> None:
    launch(node, EVE, cores=1.0)
    spec = ContainerSpec(argv=("x",), cpu_cores=1.0)
    refused(lambda: node.handle(e.AdoptRequested(EVE, spec, 7, False), 0.0) and None, "user_max_cores")


def test_other_limits_hold_at_once_and_end_nothing(node: Node) -> None:
    job(node, EVE)
    job(node, EVE)
    settings = node.settings
    node.handle(e.Reconfigured(replace(settings, quotas=replace(QUOTAS, jobs=1)), 0.0), 0.0)
    assert len(node.jobs) == 2
    refused(lambda: job(node, EVE) and None, "user_max_jobs is 1")
    node.handle(e.Reconfigured(replace(settings, quotas=UserQuotas()), 0.0), 0.0)
    for _ in range(5):
        job(node, EVE)


def test_what_the_host_never_has_is_refused_with_its_figure(node: Node) -> None:
    remedy = "(ask for less)"  # no waiting helps
    refused(lambda: launch(node, ROOT, memory_bytes=2**40), "memory: 1 TiB asked, this host has 954 MiB", remedy)
    refused(lambda: launch(node, ROOT, cores=99), "cpu: 99 cores asked, this host has 8", remedy)
    refused(lambda: launch(node, ROOT, cores=99, opportunistic=True), "asked, this host has 0.9 × 8", remedy)
    launch(node, ROOT, cores=6)
    refused(lambda: launch(node, ROOT, cores=6), "2 of 8 not promised yet", "wait until something ends")


def test_processes_of_a_container(node: Node) -> None:
    for pids in (None, 100):
        launch_with_pids(node, EVE, pids)
    more = "user_max_pids is 100", "an operator"
    refused(lambda: launch_with_pids(node, MAX, 101), "max has asked for pids_max 101", *more)
    launch_with_pids(node, ROOT, 10**6)
    container = next(iter(node.containers.live))
    resize = e.Asked(m.RESIZE, EVE, Resize(container=container, limits={"pids_max": 101}))
    refused(lambda: node.handle(resize, 0.0) and None, "eve has asked for pids_max 101", *more)
    name = job(node, EVE)
    command = ContainerSpec(argv=("x",), limits=Limits(pids_max=101))
    asked = [TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=command)]
    refused(
        lambda: (
            node.handle(e.Asked(m.PLACE, EVE, Place(job=name, stage="s", tasks=asked, opportunistic=False)), 0.0)
            and None
        ),
        *more,
    )
