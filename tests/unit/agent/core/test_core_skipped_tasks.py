"""Skipped tasks in a job's progress, which an older master would refuse."""

from __future__ import annotations

import pytest

from agent.core import events as e
from penstock.model.work import StageProgress
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import EndJob, Progress
from tests.fakes.node_bed import NodeBed

STAGES = [StageProgress(stage="map", tasks=4, done=3), StageProgress(stage="reduce", tasks=2, done=2, skipped=2)]
OLDER = [STAGES[0], StageProgress(stage="reduce", tasks=2, done=2)]


@pytest.fixture
def bed() -> NodeBed:
    made = NodeBed()
    made.open()
    return made


def reported(bed: NodeBed) -> str:
    """Register a job of which tasks were skipped."""
    job = bed.register()
    bed.send(e.Requested(m.PROGRESS, 1, Progress(job=job, stages=STAGES)))
    return job


def test_a_registration_has_none_and_a_master_that_reads_them_is_told_after_it(bed: NodeBed) -> None:
    job = reported(bed)
    for reads in (True, False):
        bed.node.link_opens()
        [state] = bed.node.client_jobs.states()
        assert state.stages == OLDER
        assert bed.node.client_jobs.skipped_progress(read=reads) == (
            [Progress(job=job, stages=STAGES)] if reads else []
        )


@pytest.mark.parametrize("reads", [True, False])
def test_only_a_master_that_reads_them_is_told(bed: NodeBed, reads: bool) -> None:
    bed.node.client_jobs.skipped_progress(read=reads)
    job = reported(bed)
    [told] = bed.to_master(api.Progress)
    assert told.stages == (STAGES if reads else OLDER)
    bed.send(e.Requested(m.END_JOB, 1, EndJob(job=job)))
    [ended] = bed.to_master(api.JobEnded)
    at_end = bed.node.client_jobs.at_end_for_master(ended.at_end)
    assert at_end is not None and at_end.stages == (STAGES if reads else OLDER)
