"""Ended commands of no job tell the master their size."""

from __future__ import annotations

import pytest

from agent.core import events as e
from penstock.model import ContainerSpec
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import ContainerRef, EndJob
from penstock.wire.cluster_api import CommandUse
from tests.unit.agent.core.ranks_bed import EVE, Bed

SORT = ("/usr/bin/sort", "big.txt")


@pytest.fixture
def bed() -> Bed:
    return Bed(has_master=True)


def told(bed: Bed) -> list[CommandUse]:
    return bed.node.heartbeat(bed.now).commands


def ran(bed: Bed, cpu_s: float, status: int = 0, **spec: object) -> None:
    container = bed.launch(**{"argv": SORT, **spec})
    bed.exit(container, status, cpu_s)
    del bed.used_s[container]


def test_a_completed_command_is_reported_once_by_its_name_or_its_programs(bed: Bed) -> None:
    ran(bed, 2.0)
    ran(bed, 3.0, name="nightly")
    ran(bed, 4.0, argv=("python3", "-u", "jobs/report.py"), opportunistic=True)
    ran(bed, 5.0, name="promised", cpu_cores=0.5)
    assert told(bed) == [
        CommandUse(user="eve", name=name, cpu_s=cpu_s)
        for name, cpu_s in (("sort", 2.0), ("nightly", 3.0), ("report.py", 4.0), ("promised", 5.0))
    ]
    assert told(bed) == []


def test_what_did_not_complete_or_has_no_name_or_no_size_tells_nothing(bed: Bed) -> None:
    ran(bed, 2.0, status=1)
    ran(bed, 2.0, argv=("python", "-c", "pass"))
    ran(bed, 0.0)
    cancelled = bed.launch(argv=SORT)
    bed.send(e.Asked(m.KILL, EVE, ContainerRef(container=cancelled)))
    bed.exit(cancelled)
    adopted = str(bed.send(e.AdoptRequested(EVE, ContainerSpec(argv=SORT), 77, tree=False)))
    bed.begin(adopted, 77)
    bed.exit(adopted)
    bed.command("t")
    bed.begin(bed.container("t"))
    bed.exit(bed.container("t"))
    assert told(bed) == []


def test_the_use_of_a_job_in_a_container_is_the_jobs_even_if_it_ends_first(bed: Bed) -> None:
    container = bed.launch(argv=SORT)
    session = bed.connect(container)
    job = bed.register(session)
    bed.send(e.Asked(m.END_JOB, session, EndJob(job=job)))
    bed.sample()
    bed.exit(container, cpu_s=5.0)
    assert told(bed) == []


def test_reports_wait_for_a_master_that_reads_them(bed: Bed) -> None:
    bed.node.link_opens()
    ran(bed, 2.0)
    assert told(bed) == []
    bed.node.command_sizes.read = True
    assert [use.cpu_s for use in told(bed)] == [2.0]
