"""Which of a job's reports of progress are sent, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from penstock.client import AgentClient, Job, progress
from penstock.client.progress import ProgressReports
from penstock.model.work import StageProgress
from tests.fakes.agent import FakeAgent


class Bed:
    """Reports of one stage, and the finished tasks in those that were sent."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self._news = asyncio.Event()
        self.reports = ProgressReports(self._send)

    def report(self, *done: int, of: int = 9) -> None:
        for each in done:
            self.reports.report([StageProgress(stage="map", tasks=of, done=each)])

    async def until(self, sent: list[int]) -> None:
        async with asyncio.timeout(10):
            while self.sent != sent:
                self._news.clear()
                await self._news.wait()

    def _send(self, stages: list[StageProgress]) -> None:
        self.sent += [stage.done for stage in stages]
        self._news.set()


@pytest.fixture
async def bed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bed]:
    monkeypatch.setattr(progress, "GAP_S", 30.0)
    bed = Bed()
    yield bed
    bed.reports.close()


async def test_the_first_one_is_sent_at_once_and_counts_wait(bed: Bed) -> None:
    bed.report(1, 2, 3)
    assert bed.sent == [1]
    bed.reports.flush()
    assert bed.sent == [1, 3], "the latest one, where another message is to follow it"
    bed.reports.flush()
    assert bed.sent == [1, 3]


async def test_the_latest_count_is_sent_when_the_gap_ends_and_the_next_one_after_another_gap(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "GAP_S", 0.01)
    bed.report(1, 2, 3)
    await bed.until([1, 3])
    bed.report(4)
    assert bed.sent == [1, 3]
    await bed.until([1, 3, 4])


async def test_a_stage_that_is_over_or_has_more_tasks_is_sent_at_once_with_its_counts(bed: Bed) -> None:
    bed.report(1, 2, 9)
    assert bed.sent == [1, 9]
    bed.report(9, of=12)
    assert bed.sent == [1, 9, 9]


async def test_nothing_is_sent_after_the_end(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "GAP_S", 0.0)
    bed.report(1, 2)
    bed.reports.close()
    for _ in range(2):  # the loop looks at its timers
        await asyncio.sleep(0)
    bed.reports.flush()
    assert bed.sent == [1]


async def _leave(client: AgentClient, job: Job) -> None:
    job.leave("")
    await client.close()


@pytest.mark.usefixtures("bed")  # for its gap
@pytest.mark.parametrize(
    ("part", "last"),
    [(lambda client, job: job.end(), ["end_job"]), (_leave, ["leave_job"]), (lambda client, job: client.close(), [])],
    ids=["end", "leave", "close"],
)
async def test_the_latest_count_precedes_the_last_message_of_a_job(
    fake: FakeAgent, client: AgentClient, part: Callable[[AgentClient, Job], Awaitable[None]], last: list[str]
) -> None:
    job = await client.register_job("j")
    fake.calls.clear()
    for done in (1, 2, 3):
        job.progress([StageProgress(stage="map", tasks=9, done=done)])
    await part(client, job)
    await fake.until(lambda: len(fake.calls) >= 2 + len(last))
    assert [method for method, _ in fake.calls] == ["progress", "progress", *last]
    assert [asked.stages[0].done for asked in fake.called("progress")] == [1, 3]
