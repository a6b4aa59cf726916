"""Which containers share a group: those of a job that may have several on this node."""

from __future__ import annotations

import pytest

from agent.core import events as e
from agent.core.confinement import MOST_WEIGHT, Confinement
from agent.core.groups import group_of, group_of_tenant, together
from agent.core.instructions import AdoptProcess, StartContainer
from penstock.model import ContainerSpec, Executor, KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch, Place
from penstock.wire.jobs_api import LeaveJob
from tests.unit.agent.core.ranks_bed import Bed, TenantsBed


class Grouped(Bed):
    """A node with a master."""

    def __init__(self, cores: float = 8) -> None:
        super().__init__(cores=cores, has_master=True)

    def place(self, session: int, job: str, *tasks: str) -> None:
        """Ask for places, and get them here."""
        requests = [
            TaskRequest(task=task, usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("x",))) for task in tasks
        ]
        self.send(e.Requested(m.PLACE, session, Place(job=job, stage="s", tasks=requests)))
        for request in requests:
            assert self.assign_request(request, job=job, origin="n") == []

    def groups(self) -> list[tuple[str, ...]]:
        """Of all containers, in the order of their starts."""
        return groups_of_starts(self)


def groups_of_starts(bed: Bed) -> list[tuple[str, ...]]:
    """Likewise."""
    return [one.groups for one in bed.done if isinstance(one, StartContainer | AdoptProcess)]


@pytest.fixture
def bed() -> Grouped:
    return Grouped()


def test_the_tasks_of_a_job_share_a_group_and_a_single_one_has_none(bed: Grouped) -> None:
    alone, several = (bed.register(bed.eve) for _ in range(2))
    bed.place(bed.eve, alone, "only")
    bed.place(bed.eve, several, "one", "two")
    assert bed.groups() == [(), (group_of(several),), (group_of(several),)]


def test_a_later_task_beside_the_first_opens_the_group(bed: Grouped) -> None:
    job = bed.register(bed.eve)
    bed.place(bed.eve, job, "one")
    bed.begin(bed.container("one", job), 70)
    bed.place(bed.eve, job, "two")
    assert bed.groups() == [(), (group_of(job),)]
    assert bed.node.containers.live[bed.container("two", job)].groups == (group_of(job),), "for the next agent"


def test_an_opportunistic_container_and_one_of_no_job_are_in_none(bed: Grouped) -> None:
    job = bed.register(bed.eve)
    bed.launch()
    bed.launch(detach=True, opportunistic=True)
    bed.command("one", job="other-9", opportunistic=True)
    assert bed.groups() == [(), (), ()] and job


def test_jobs_of_other_nodes_and_executors_may_have_several(bed: Grouped) -> None:
    bed.command("one", job="other-9")
    job = bed.register(bed.eve)
    spec = ContainerSpec(argv=("x",), cpu_cores=0.5, memory_bytes=1 << 20)
    executor = Executor(application="a", input_bytes=1)
    request = TaskRequest(task="e", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20, command=spec, executor=executor)
    assert bed.assign_request(request, job=job, origin="n") == []
    assert bed.groups() == [("other-9.job",), (group_of(job),)]


@pytest.mark.parametrize(("cores", "has"), [(100, True), (101, False)])
def test_a_node_whose_weights_may_exceed_the_largest_has_no_groups(cores: int, has: bool) -> None:
    bed = Grouped(cores=cores)
    bed.command("one", job="other-9")
    assert bed.groups() == [("other-9.job",) if has else ()]


def test_a_detached_manager_and_the_only_task_of_its_job_share_one(bed: Grouped) -> None:
    """The job is registered first, by the command that starts its manager, which joins it."""
    session = bed.connect()
    job = bed.register(session)
    manager = str(bed.send(e.Requested(m.LAUNCH, session, Launch(container=ContainerSpec(argv=("x",), detach=True)))))
    bed.begin(manager, 70)
    inside = bed.connect(manager)
    bed.register(inside, job=job)
    bed.send(e.SessionClosed(session))
    bed.place(inside, job, "only")
    assert bed.groups() == [(group_of(job),), (group_of(job),)]


def test_a_command_starts_on_the_slot_of_a_connection_of_its_job_that_closes() -> None:
    bed = Grouped(cores=1)
    closes, stays = bed.connect(), bed.connect()
    job = bed.register(closes)
    bed.register(stays, job=job)
    bed.submit(closes, job, 1)
    bed.place(stays, job, "waits")
    assert bed.groups() == []
    bed.send(e.SessionClosed(closes))
    assert bed.groups() == [()]
    assert job in bed.node.jobs


def test_lent_processes_share_one(bed: Grouped) -> None:
    job = bed.register(bed.eve)
    for pid in (500, 600):
        container = bed.send(e.LendRequested(bed.eve, job, pid, ("python", "x.py"), own=False))
        bed.begin(container, pid)
    assert bed.groups() == [(group_of(job),), (group_of(job),)]


def test_where_the_master_names_tenants_each_has_a_group_around_those_of_its_jobs() -> None:
    bed = TenantsBed()
    before = bed.run("ann")
    bed.told(before, tenant="research")
    job = bed.job_of[before]
    manager = bed.alone("ann")
    bed.register(bed.session_of("ann", manager), job=job)
    bed.command("one", job=job, user="ann")
    bed.alone("bob")
    bed.alone("bob", opportunistic=True)
    ann, bob = (group_of_tenant(tenant) for tenant in ("research", "bob"))
    assert groups_of_starts(bed) == [(), (ann,), (ann, group_of(job)), (bob,), ()]


def test_a_job_s_group_stays_where_it_is_when_its_tenant_becomes_known() -> None:
    """The manager of a detached job starts before the master has told the job's tenant."""
    bed = TenantsBed()
    session = bed.session_of("ann")
    job = bed.register(session)
    manager = str(bed.send(e.Requested(m.LAUNCH, session, Launch(container=ContainerSpec(argv=("x",), detach=True)))))
    bed.begin(manager, 70)
    bed.job_of[manager] = bed.register(bed.session_of("ann", manager), job=job)
    bed.told(manager, tenant="ann")
    bed.command("one", job=job, user="ann")
    bed.restart(manager, bed.container("one", job))
    bed.told(manager, tenant="ann")
    bed.command("two", job=job, user="ann")
    assert groups_of_starts(bed) == [(group_of(job),)]
    assert {each.groups for each in bed.node.containers.live.values()} == {(group_of(job),)}


def test_the_next_agent_knows_the_tenants_before_it_ranks() -> None:
    bed = TenantsBed()
    before = bed.run("ann")
    bed.told(before, tenant="research")
    bed.restart(before)
    bed.command("one", job="other-9", user="ann")
    assert groups_of_starts(bed) == [(group_of_tenant("research"), "other-9.job")]


def test_a_job_of_a_user_whose_tenant_is_unknown_is_outside() -> None:
    """Not in a tenant of the user's name, in which it would stay."""
    bed = TenantsBed()
    bed.told(bed.run("bob"), tenant="research")
    bed.command("one", job="other-9", user="ann")
    assert groups_of_starts(bed)[1:] == [("other-9.job",)]


def test_where_the_tenants_are_configured_a_user_s_first_container_is_in_that_of_the_user() -> None:
    """Also the manager of a detached job, which starts before the master knows the job, and a job of another node."""
    bed = TenantsBed()
    bed.node.name_tenants({"ann": ("research", 3.0)})
    job = bed.register(session := bed.session_of("ann"))
    bed.send(e.Requested(m.LAUNCH, session, Launch(container=ContainerSpec(argv=("x",), detach=True))))
    bed.command("one", job="other-9", user="ann")
    bed.command("one", job="other-8", user="bob")
    ann, bob = group_of_tenant("research"), group_of_tenant("bob")
    assert groups_of_starts(bed) == [(ann, group_of(job)), (ann, "other-9.job"), (bob, "other-8.job")]


def test_a_job_whose_containers_are_gone_begins_in_its_tenant() -> None:
    bed = TenantsBed()
    session = bed.session_of("ann")
    job = bed.register(session)
    containers = []
    for pid in (500, 600):
        containers.append(bed.send(e.LendRequested(session, job, pid, ("python", "x.py"), own=False)))
        bed.begin(containers[-1], pid)
        bed.used_s[containers[-1]] = 0.0
        bed.job_of[containers[-1]] = job
        bed.told(containers[-1], tenant="research")
        bed.end(containers[-1])
    assert groups_of_starts(bed) == [(group_of(job),), (group_of_tenant("research"), group_of(job))]


def test_containers_of_a_job_that_joined_another_and_later_ones_share_a_group(bed: Grouped) -> None:
    """As on a host whose Dask workers join the job of the cluster's first host."""
    session = bed.connect()
    here, agreed = bed.register(session), bed.register(bed.eve)
    lent = bed.send(e.LendRequested(session, here, 500, ("dask",), own=False))
    bed.begin(lent, 500)
    bed.send(e.Requested(m.LEAVE_JOB, session, LeaveJob(job=here, merged_into=agreed)))
    bed.send(e.SessionClosed(session))
    assert bed.node.containers.live[lent].job == agreed
    bed.send(e.LendRequested(bed.eve, agreed, 600, ("dask",), own=False))
    assert bed.groups() == [(group_of(here),), (group_of(here),)]


def test_work_ahead_of_its_reservation_is_of_no_tenant() -> None:
    bed = TenantsBed()
    early, due = bed.run("ann"), bed.run("ann")
    for works, reserved_cores in ((early, 0.0), (due, 1.0)):
        bed.told(works, tenant="ann", reserved_cores=reserved_cores)
        bed.command(f"of {works}", job=bed.job_of[works], user="ann")
    assert groups_of_starts(bed)[2:] == [
        (group_of(bed.job_of[early]),), (group_of_tenant("ann"), group_of(bed.job_of[due])),
    ]  # fmt: skip


def test_the_name_of_a_group_is_a_safe_file_name() -> None:
    assert group_of("node-1a2b-3") == "node-1a2b-3.job"
    odd = ["../../x-1", "Node.example.com-1", "n" * 65, "", "ä-1"]
    names = {group_of(job) for job in odd}
    assert len(names) == len(odd)
    assert all(name.removesuffix(".job").isalnum() and len(name) == 68 for name in names)
    assert group_of_tenant("../../x") != group_of_tenant("x")
    assert group_of_tenant("../../x").removesuffix(".tenant").isalnum()


def test_a_group_weighs_as_much_as_its_containers() -> None:
    one = Confinement(cpu_weight=150, memory_low_bytes=5, memory_min_bytes=1, disk_weight=62, cpu_cores=0.5)
    two = Confinement(cpu_weight=12, memory_low_bytes=2, memory_min_bytes=2, disk_weight=10, pids_max=7)
    assert together([one, two]) == Confinement(cpu_weight=162, memory_low_bytes=7, memory_min_bytes=3, disk_weight=62)
    assert together([Confinement(cpu_weight=MOST_WEIGHT)] * 2).cpu_weight == MOST_WEIGHT
