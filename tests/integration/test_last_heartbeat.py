"""An agent that is stopped tells the master what jobs have received until then; its successor begins at 0."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.wire import master_api as api
from tests.fakes.master import FakeMaster
from tests.integration.conftest import Daemon, penstock

#: A framework in a container, which computes for its job without a slot, and then waits.
FRAMEWORK = """
import asyncio, pathlib, sys, time
from penstock.client import AgentClient

async def main():
    async with await AgentClient.connect() as agent:
        job = await agent.register_job("busy")
        computed_s = time.process_time() + 0.2
        while time.process_time() < computed_s:
            pass
        pathlib.Path(sys.argv[1]).write_text(job.id)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_stopped_agent_reports_the_processor_time_until_then(
    start_agent: Callable[..., Daemon], fake_master: FakeMaster, tmp_path: Path
) -> None:
    """The next sample would be in an hour."""
    agent = await asyncio.to_thread(start_agent, master=fake_master.listen, sample_interval_s=3600)
    if not agent.status()["enforcement"]["containers"]["ok"]:
        pytest.skip("no cgroup v2 hierarchy that we may write to")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    argv = ("run", "--detach", "--", sys.executable, "-c", FRAMEWORK, str(fifo))
    done = await asyncio.to_thread(penstock, agent, *argv)
    assert done.returncode == 0, done.stderr
    job = await asyncio.to_thread(fifo.read_text)
    assert await asyncio.to_thread(agent.stop) == 0
    await fake_master.until(lambda: fake_master.left)
    (_, last) = fake_master.order[-1]
    assert isinstance(last, api.Heartbeat)
    assert [use.job for use in last.load.jobs if use.service_s >= 0.2] == [job]
