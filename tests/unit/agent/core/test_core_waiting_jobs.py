"""A job that the master does not admit: each of its connections gets the reason, whenever it joins."""

from __future__ import annotations

import pytest

from agent.core import instructions as i
from penstock.wire import master_api as api
from penstock.wire.agent_api import JobWaiting
from tests.fakes.node_bed import NodeBed


@pytest.mark.parametrize("never", [False, True])
def test_a_connection_that_joins_later_gets_the_reason_why_the_job_waits(never: bool) -> None:
    bed = NodeBed()
    bed.open(1)
    bed.open(2)
    job = bed.register(1)
    assert bed.decide(api.TellWaiting(job=job, why="it is large", never=never)) == []
    bed.register(2, job=job)
    waiting = JobWaiting(job=job, why="it is large", never=never)
    assert [(one.session, one.params) for one in bed.given(i.Notify)] == [(1, waiting), (2, waiting)]


def test_a_connection_that_joins_after_the_admission_gets_no_reason() -> None:
    bed = NodeBed()
    bed.open(1)
    bed.open(2)
    job = bed.register(1)
    assert bed.decide(api.TellWaiting(job=job, why="it is large"), api.AdmitJob(job=job)) == []
    bed.register(2, job=job)
    assert [one.session for one in bed.given(i.Notify)] == [1, 1]
