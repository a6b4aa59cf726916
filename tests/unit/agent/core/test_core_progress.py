"""Reports of a job's progress: those with news go to the master at once, those that only count may wait."""

from __future__ import annotations

import pytest

from agent.core import events as e
from agent.core import instructions as i
from penstock.model import KindAmounts
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Progress, StageProgress
from tests.fakes.node_bed import NodeBed

BEFORE = [
    StageProgress(stage="map", tasks=8, done=3, usage=KindAmounts(cpu=5e6)),
    StageProgress(stage="reduce", tasks=2, after=["map"]),
]


def may_wait(bed: NodeBed, *reports: list[StageProgress]) -> list[bool]:
    """Report progress several times; return of each report whether it may wait."""
    job = bed.register()
    bed.done.clear()
    for stages in reports:
        bed.send(e.Requested(m.PROGRESS, 1, Progress(job=job, stages=stages)))
    sent = bed.given(i.SendToMaster)
    assert [each.params for each in sent] == [Progress(job=job, stages=stages) for stages in reports]
    return [each.may_wait for each in sent]


@pytest.fixture
def bed() -> NodeBed:
    bed = NodeBed()
    bed.open()
    return bed


def test_the_first_report_goes_at_once(bed: NodeBed) -> None:
    assert may_wait(bed, BEFORE) == [False]


def test_more_finished_tasks_may_wait(bed: NodeBed) -> None:
    more = StageProgress(stage="map", tasks=8, done=5, usage=KindAmounts(cpu=3e6))
    assert may_wait(bed, BEFORE, [more, BEFORE[1]], [more, BEFORE[1]]) == [False, True, True]


@pytest.mark.parametrize(
    "news",
    [
        [BEFORE[0]],
        [*BEFORE, StageProgress(stage="sort", tasks=1)],
        [BEFORE[0], StageProgress(stage="reduce", tasks=2)],
        [StageProgress(stage="map", tasks=9, done=3, usage=KindAmounts(cpu=5e6)), BEFORE[1]],
        [StageProgress(stage="map", tasks=8, done=8), BEFORE[1]],
        [BEFORE[0], StageProgress(stage="reduce", tasks=2, after=["map"], usage=KindAmounts(disk=1.0))],
        [BEFORE[0], StageProgress(stage="reduce", tasks=2, after=["map"], input_bytes=1)],
    ],
    ids=["gone", "new", "its order", "its tasks", "over", "its work", "its input"],
)
def test_news_of_a_stage_goes_at_once(bed: NodeBed, news: list[StageProgress]) -> None:
    assert may_wait(bed, BEFORE, news) == [False, False]
