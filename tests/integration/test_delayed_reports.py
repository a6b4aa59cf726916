"""What the master does not wait for, or act on, leaves the agent with its next message."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from agent.core import Node
from agent.shell import Shell
from penstock.model import Ended, EndedBy, KindAmounts, TaskRequest
from penstock.transport import peer as transport
from penstock.wire import master_api as api
from penstock.wire.agent_api import StageProgress
from tests.integration.test_ends_until_heard import SETTINGS, linked

TASK = TaskRequest(task="t", usage=KindAmounts(cpu=1.0))


@pytest.fixture(autouse=True)
def delays_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "DELAY_S", 30.0)


def deciding() -> tuple[Shell, asyncio.Event]:
    """Return a shell that carries out every decision, and whether it has got one."""
    decided = asyncio.Event()

    def dispatch(event: object) -> object:
        decided.set()
        return api.Decided()

    return cast("Shell", SimpleNamespace(node=Node(SETTINGS), link=None, dispatch=dispatch)), decided


def progress(job: str, done: int) -> api.Progress:
    return api.Progress(job=job, stages=[StageProgress(stage="map", tasks=9, done=done)])


async def test_of_each_job_s_reports_that_may_wait_the_last_one_is_sent_with_the_next_message(tmp_path: Path) -> None:
    async with linked(tmp_path, [], "heartbeat") as (master, link):
        del master.heard[0][:]
        for job, done in (("j", 1), ("k", 1), ("j", 2), ("j", 3)):
            link.send(progress(job, done), may_wait=True)
        await asyncio.sleep(0)
        link.send(api.ReadyTasks(job="j", stage="s", tasks=[TASK]))
        await master.until(0, "tasks_ready")
        assert master.heard[0] == ["progress", "progress", "tasks_ready"]


@pytest.mark.parametrize(
    "decision",
    [
        api.SetPriority(job="j", priority=1.0), api.AdmitJob(job="j"),
        api.TellPlaced(job="j", task="t", node="n"), api.TellWaiting(job="j", why="memory"),
    ],
)  # fmt: skip
async def test_the_answer_to_a_notice_comes_with_the_next_message(tmp_path: Path, decision: api.AnyDecision) -> None:
    shell, decided = deciding()
    async with linked(tmp_path, [], "heartbeat", of=shell) as (master, link):
        del master.heard[0][:]
        answer = master.peers[0].start_request("decide", api.Decide(number=1, decisions=[decision]))
        await asyncio.wait_for(decided.wait(), 10)
        link.send_heartbeat()
        assert not answer.done()
        await master.until(0, "heartbeat")
        assert answer.done(), "it came before the heartbeat"


@pytest.mark.parametrize(
    "decisions",
    [
        [api.Assign(job="j", stage="s", user="u", origin="n", request=TASK, priority=0.0, opportunistic=False)],
        [api.TellEnded(job="j", task="t", node="n", ended=Ended(by=EndedBy.EXIT, exit_status=0))],
        [api.AdmitJob(job="j"), api.CancelJob(job="j", by="eve")],
    ],
    ids=["a task", "an end", "one of several"],
)
async def test_an_answer_on_which_the_master_acts_comes_at_once(
    tmp_path: Path, decisions: list[api.AnyDecision]
) -> None:
    shell, _ = deciding()
    async with linked(tmp_path, [], "heartbeat", of=shell) as (master, link):
        link.send_soon = lambda: None  # type: ignore[method-assign]
        answer = master.peers[0].start_request("decide", api.Decide(number=1, decisions=decisions))
        await asyncio.wait_for(answer, 10)
