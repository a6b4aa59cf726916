"""The progress of a job's stages in a scheduler's task groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

pytest.importorskip("distributed")

from distributed import Client, Scheduler, Worker

from penstock.engines.dask import progress
from penstock.engines.dask.progress import Reporter, answer_at, by_prefix, stages
from penstock.wire.agent_api import StageProgress


@dataclass(eq=False)
class Group:
    """As ``distributed.scheduler.TaskGroup``, of which the real one is driven by the integration test."""

    name: str
    states: dict[str, int]
    dependencies: set[Group] = field(default_factory=set)
    nbytes_total: int = 0


def told(*groups: Group) -> list[StageProgress]:
    return stages(cast(Any, groups))


def test_groups_become_stages_with_their_share_of_the_earlier_results() -> None:
    read = Group("read", {"memory": 3, "released": 1, "processing": 0}, nbytes_total=4000)
    parse = Group("parse", {"memory": 1, "processing": 1, "queued": 1, "waiting": 1}, {read})
    assert told(read, parse) == [
        StageProgress(stage="read", tasks=4, done=4),
        StageProgress(stage="parse", tasks=4, done=1, after=["read"], input_bytes=3000),
    ]


def test_failed_or_released_tasks_are_no_work_any_more() -> None:
    assert told(Group("g", {"erred": 2, "forgotten": 3, "no-worker": 1}))[0].done == 5


def test_names_and_numbers_fit_the_message() -> None:
    many = [Group(f"{number:05}" + "x" * 200, {"waiting": 1}) for number in range(5000)]
    said = told(*many)
    assert len(said) == 4096
    assert said[-1].stage.startswith("04999")
    assert all(len(stage.stage) == 128 for stage in said)
    assert told(Group("", {}))[0] == StageProgress(stage="-", tasks=0)


def test_a_scheduler_without_our_plugin_reports_its_prefixes() -> None:
    counts = {"inc": {"memory": 2, "erred": 1, "released": 0, "processing": 1, "waiting": 4}}
    assert by_prefix(counts) == [StageProgress(stage="inc", tasks=8, done=3)]


class Speaker:
    """The worker that has the connection to the agent."""

    speaks = True

    def __init__(self, worker: Any, progress: Callable[[list[StageProgress]], object]) -> None:
        self.workers = [worker]
        self.progress = progress


@pytest.mark.parametrize("answers", [True, False])
async def test_a_worker_passes_on_its_scheduler_s_report(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    heard: asyncio.Queue[list[StageProgress]] = asyncio.Queue()

    def two(one: int) -> int:
        return 2 * one

    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler:
        if answers:
            answer_at(scheduler)
        async with (
            Worker(scheduler.address, nthreads=1, dashboard=False, dashboard_address="127.0.0.1:0") as worker,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            reporter = Reporter(Speaker(worker, heard.put_nowait))
            doubled = client.map(two, range(5), pure=False)  # held until the end: released tasks are not reported
            total = client.submit(sum, doubled)
            assert await total == 20
            async with asyncio.timeout(60):
                said = await heard.get()
                while sum(stage.done for stage in said) < 6:
                    said = await heard.get()
            assert sum(stage.tasks for stage in said) == 6
            assert any(stage.after for stage in said) == answers
            reporter.stop()


class Troubled:
    """A scheduler that fails for a while."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.scheduler = self

    async def get_metadata(self, keys: list[str], default: bool) -> bool:
        return default

    async def get_task_prefix_states(self) -> dict[str, dict[str, int]]:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("in the middle of it")
        return {"inc": {"memory": 1}}


async def test_an_error_ends_nothing_and_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.001)
    heard: asyncio.Queue[list[StageProgress]] = asyncio.Queue()
    with caplog.at_level(logging.WARNING, "penstock"):
        reporter = Reporter(Speaker(Troubled(3), heard.put_nowait))
        assert await asyncio.wait_for(heard.get(), 60) == [StageProgress(stage="inc", tasks=1, done=1)]
        reporter.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "the job's progress cannot be reported for now: OSError: in the middle of it"
    ]


async def test_an_unchanged_report_is_repeated_and_only_by_the_speaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.001)
    monkeypatch.setattr(progress, "AGAIN_S", 0.0)
    heard: asyncio.Queue[list[StageProgress]] = asyncio.Queue()
    speaker = Speaker(Troubled(0), heard.put_nowait)
    speaker.speaks = False
    reporter = Reporter(speaker)
    for _ in range(20):
        await asyncio.sleep(0)
    assert heard.empty()
    speaker.speaks = True
    said = [await asyncio.wait_for(heard.get(), 60) for _ in range(2)]
    assert said[0] == said[1]
    reporter.stop()
