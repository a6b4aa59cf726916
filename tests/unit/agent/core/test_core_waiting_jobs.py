"""A job that the master does not admit: each of its connections gets the reason, whenever it joins."""

from __future__ import annotations

import pytest

from agent.core import instructions as i
from penstock.wire import master_api as api
from penstock.wire.agent_api import JobWaiting
from tests.fakes.node_bed import NodeBed


@pytest.mark.parametrize("admitted", [False, True])
@pytest.mark.parametrize("never", [False, True])
def test_a_connection_that_joins_later_gets_the_reason_while_the_job_waits(never: bool, admitted: bool) -> None:
    bed = NodeBed()
    bed.open(1)
    bed.open(2)
    job = bed.register(1)
    said: list[api.AnyDecision] = [api.TellWaiting(job=job, why="it is large", never=never)]
    assert bed.decide(*said, *[api.AdmitJob(job=job)] * admitted) == []
    bed.register(2, job=job)
    waiting = JobWaiting(job=job, why="it is large", never=never)
    told = [(one.session, one.params) for one in bed.given(i.Notify)]
    assert [session for session, _ in told] == ([1, 1] if admitted else [1, 2])
    assert [params for _, params in told if isinstance(params, JobWaiting)] == [waiting] * (1 if admitted else 2)
