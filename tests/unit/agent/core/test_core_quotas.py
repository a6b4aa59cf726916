"""The limits on one user's queue, holdings and promises: one clear refusal each.

Others and operators are not affected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.core import events as e
from agent.core.settings import UserQuotas
from penstock.model import Capacity, ContainerSpec, KindAmounts, Limits, ResourceKind, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Cancel, EndJob, Place, Resize, TaskRefs
from penstock.wire.errors import ErrorCode, RpcError
from tests.fakes.node_bed import NodeBed

EVE, MAX, ROOT = 1, 2, 3
QUOTAS = UserQuotas(jobs=2, queued=3, tasks=2, containers=2, cores=1.5, memory_bytes=10**6, pids=100)


@pytest.fixture
def bed() -> NodeBed:
    capacity = Capacity(cores=8, memory_bytes=10**9, disk_slots=1, network_slots=1)
    made = NodeBed(capacity=capacity, quotas=QUOTAS)
    for session, user, operator in ((EVE, "eve", False), (MAX, "max", False), (ROOT, "root", True)):
        made.open(session, user, operator=operator)
    return made


def submit(bed: NodeBed, session: int, name: str, *ids: int) -> None:
    bed.submit(session, name, *ids, kind=ResourceKind.DISK, size=10**6)


def place(bed: NodeBed, session: int, name: str, *tasks: str) -> None:
    requests = [TaskRequest(task=task, usage=KindAmounts(cpu=1.0)) for task in tasks]
    bed.send(e.Requested(m.PLACE, session, Place(job=name, stage="s", tasks=requests, opportunistic=False)))


def refused(what: Callable[[], None], *parts: str) -> None:
    with pytest.raises(RpcError) as caught:
        what()
    assert caught.value.code is ErrorCode.REFUSED
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_jobs(bed: NodeBed) -> None:
    first = bed.register(EVE)
    bed.register(EVE)
    refused(
        lambda: bed.register(EVE) and None, "eve has 2 jobs registered; user_max_jobs is 2", "end one first", "raise"
    )
    bed.register(MAX)
    for _ in range(3):
        bed.register(ROOT)
    bed.send(e.Requested(m.END_JOB, EVE, EndJob(job=first)))
    bed.register(EVE)


def test_joining_is_not_one_more(bed: NodeBed) -> None:
    first = bed.register(EVE)
    bed.register(EVE)
    bed.open(4)
    bed.register(4, job=first)


def test_queued_monotasks_of_all_jobs_together(bed: NodeBed) -> None:
    one, other, theirs = bed.register(EVE), bed.register(EVE), bed.register(MAX)
    submit(bed, EVE, one, 1, 2, 3)  # one of them is granted at once
    submit(bed, EVE, other, 1)
    refused(lambda: submit(bed, EVE, other, 2), "eve has 3 monotasks queued, and 1 more asked; user_max_queued is 3")
    assert bed.node.queues.job_counts(other)["queued"] == 1, "all of a request, or none"
    submit(bed, MAX, theirs, 1, 2, 3)
    bed.send(e.Requested(m.CANCEL, EVE, Cancel(job=one, ids=[3])))
    submit(bed, EVE, other, 2)


def test_tasks_that_wait_or_run(bed: NodeBed) -> None:
    one, theirs = bed.register(EVE), bed.register(MAX)
    place(bed, EVE, one, "a", "b")
    refused(
        lambda: place(bed, EVE, one, "c"), "eve has 2 tasks that wait or run, and 1 more asked; user_max_tasks is 2"
    )
    place(bed, MAX, theirs, "a")
    bed.send(e.Requested(m.TASKS_DONE, EVE, TaskRefs(job=one, tasks=["a"])))
    place(bed, EVE, one, "c")


def test_tasks_that_were_asked_for_before_are_not_more(bed: NodeBed) -> None:
    job = bed.register(EVE)
    place(bed, EVE, job, "a", "b")
    place(bed, EVE, job, "a", "b")
    refused(lambda: place(bed, EVE, job, "a", "b", "c"), "2 tasks that wait or run, and 1 more asked")
    bed.send(e.Reconfigured(replace(bed.node.settings, quotas=replace(QUOTAS, tasks=1)), 0.0))
    place(bed, EVE, job, "a", "b")


def test_containers_and_their_promises(bed: NodeBed) -> None:
    bed.launch(EVE, cpu_cores=1.0, memory_bytes=6 * 10**5)
    refused(lambda: bed.launch(EVE, cpu_cores=0.6), "1 core promised, and 0.6 more asked; user_max_cores is 1.5")
    refused(lambda: bed.launch(EVE, memory_bytes=5 * 10**5), "user_max_memory_bytes is", "run it opportunistic")
    bed.launch(EVE, cpu_cores=0.6, opportunistic=True)  # promised nothing
    refused(lambda: bed.launch(EVE), "eve has 2 containers; user_max_containers is 2", "wait until one ends")
    refused(lambda: bed.launch(EVE, opportunistic=True), "user_max_containers is 2")
    bed.launch(MAX, cpu_cores=1.5)
    bed.launch(ROOT, cpu_cores=3.0)
    assert len(bed.node.containers.live) == 4, "a refusal leaves nothing behind"


def test_adopting_counts_as_starting(bed: NodeBed) -> None:
    bed.launch(EVE, cpu_cores=1.0)
    spec = ContainerSpec(argv=("x",), cpu_cores=1.0)
    refused(lambda: bed.send(e.AdoptRequested(EVE, spec, 7, False)) and None, "user_max_cores")


def test_other_limits_hold_at_once_and_end_nothing(bed: NodeBed) -> None:
    bed.register(EVE)
    bed.register(EVE)
    settings = bed.node.settings
    bed.send(e.Reconfigured(replace(settings, quotas=replace(QUOTAS, jobs=1)), 0.0))
    assert len(bed.node.jobs) == 2
    refused(lambda: bed.register(EVE) and None, "user_max_jobs is 1")
    bed.send(e.Reconfigured(replace(settings, quotas=UserQuotas()), 0.0))
    for _ in range(5):
        bed.register(EVE)


def test_a_demand_beyond_the_host_is_refused_with_its_figure(bed: NodeBed) -> None:
    remedy = "(ask for less)"  # no waiting helps
    refused(lambda: bed.launch(ROOT, memory_bytes=2**40), "memory: 1 TiB asked, this host has 954 MiB", remedy)
    refused(lambda: bed.launch(ROOT, cpu_cores=99), "cpu: 99 cores asked, this host has 8", remedy)
    refused(lambda: bed.launch(ROOT, cpu_cores=99, opportunistic=True), "asked, this host has 0.9 × 8", remedy)
    bed.launch(ROOT, cpu_cores=6)
    refused(lambda: bed.launch(ROOT, cpu_cores=6), "2 of 8 not promised yet", "wait until something ends")


def test_a_sending_rate_that_the_link_never_has_is_refused_with_its_remedy() -> None:
    def promise(link_bytes_per_s: int, *parts: str, **spec: float) -> None:
        bed = NodeBed(cores=8, link_bytes_per_s=link_bytes_per_s)
        bed.open(ROOT, "root", operator=True)
        bed.launch(ROOT, cpu_cores=6, network_bytes_per_s=min(10, link_bytes_per_s))
        refused(lambda: bed.launch(ROOT, network_bytes_per_s=95, **spec), *parts)

    unknown = "the link's rate is unknown, so no part of it can be promised (set network_link_bytes_per_s in"
    promise(0, unknown)
    promise(0, unknown, cpu_cores=6)  # no end of other work helps, either
    promise(0, "cpu: 99 cores asked, this host has 8 (ask for less)", cpu_cores=99)
    promise(94, "network: 95 B/s asked, the link has 94 B/s (ask for less)")
    promise(100, "95 B/s asked, 90 B/s of 100 B/s not promised yet", "wait until something ends")


def test_processes_of_a_container(bed: NodeBed) -> None:
    for pids in (None, 100):
        bed.launch(EVE, limits=Limits(pids_max=pids))
    more = "user_max_pids is 100", "an operator"
    refused(lambda: bed.launch(MAX, limits=Limits(pids_max=101)), "max has asked for pids_max 101", *more)
    bed.launch(ROOT, limits=Limits(pids_max=10**6))
    container = next(iter(bed.node.containers.live))
    resize = e.Requested(m.RESIZE, EVE, Resize(container=container, limits={"pids_max": 101}))
    refused(lambda: bed.send(resize) and None, "eve has asked for pids_max 101", *more)
    name = bed.register(EVE)
    command = ContainerSpec(argv=("x",), limits=Limits(pids_max=101))
    asked = [TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=command)]
    refused(
        lambda: (
            bed.send(e.Requested(m.PLACE, EVE, Place(job=name, stage="s", tasks=asked, opportunistic=False))) and None
        ),
        *more,
    )
