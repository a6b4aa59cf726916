"""`penstock submit` while its job waits for its admission."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.cli.errors import CommandError
from penstock.cli.jobfile import JobFile
from penstock.cli.submission import Submission
from penstock.testing.agent import FakeAgent


@pytest.fixture
async def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeAgent]:
    agent = FakeAgent(tmp_path)
    monkeypatch.setenv("PENSTOCK_SOCKET", str(agent.socket))
    await agent.start()
    agent.admits = False
    yield agent
    await agent.stop()


def submitted(directory: Path) -> asyncio.Task[int]:
    job_file = directory / "job.toml"
    job_file.write_text('name = "big"\n[[task]]\nname = "a"\ncommand = "true"\n')
    return asyncio.create_task(Submission(JobFile(job_file), as_json=False).run())


async def test_what_no_waiting_helps_is_refused_though_that_is_said_before_the_job_is_known(
    fake: FakeAgent, tmp_path: Path
) -> None:
    fake.waits, fake.waits_for_ever = "it wants 91 TiB reserved", True
    with pytest.raises(CommandError, match="it wants 91 TiB reserved"):
        await asyncio.wait_for(submitted(tmp_path), 30)
    assert len(fake.called("end_job")) == 1
    assert [(stage.tasks, stage.done) for stage in fake.called("progress")[-1].stages] == [(1, 0)], "it is not done"


async def test_what_is_waited_for_is_said(fake: FakeAgent, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.waits = "it wants 1 GiB reserved, 381 MiB of 954 MiB is not reserved"
    running = submitted(tmp_path)
    async with asyncio.timeout(30):
        await fake.until(lambda: bool(fake.called("progress")))
    assert capsys.readouterr().err.endswith(f"waits: {fake.waits}\n")
    running.cancel()


async def test_a_job_that_is_stopped_before_it_began_is_not_said_to_be_done(fake: FakeAgent, tmp_path: Path) -> None:
    running = submitted(tmp_path)
    async with asyncio.timeout(30):
        await fake.until(lambda: bool(fake.called("progress")))
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 128 + signal.SIGTERM
    assert len(fake.called("end_job")) == 1
    assert sum(stage.done for told in fake.called("progress") for stage in told.stages) == 0
