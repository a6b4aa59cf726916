"""An agent that is stopped reports to its master what jobs have received until then, and the next one counts on."""

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


@pytest.mark.parametrize("away", [False, True], ids=["with its master", "while its master is away"])
async def test_a_stopped_agent_reports_the_processor_time_until_then_or_the_next_one_does(
    start_agent: Callable[..., Daemon], fake_master: FakeMaster, tmp_path: Path, *, away: bool
) -> None:
    """The next sample would be in an hour."""

    async def starts() -> Daemon:
        return await asyncio.to_thread(start_agent, master=fake_master.listen, sample_interval_s=3600)

    agent = await starts()
    if not agent.status()["enforcement"]["containers"]["ok"]:
        pytest.skip("no cgroup v2 hierarchy that we may write to")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    argv = ("run", "--detach", "--", sys.executable, "-c", FRAMEWORK, str(fifo))
    done = await asyncio.to_thread(penstock, agent, *argv)
    assert done.returncode == 0, done.stderr
    job = await asyncio.to_thread(fifo.read_text)
    if away:
        await fake_master.close()
    assert await asyncio.to_thread(agent.stop) == 0
    await fake_master.until(lambda: fake_master.left)
    (_, last) = fake_master.order[-1]
    assert isinstance(last, api.Heartbeat)
    reported_s = {use.job: use.service_s for use in last.load.jobs if use.service_s >= 0.2}
    assert [*reported_s] == ([] if away else [job])
    if away:
        await fake_master.start()
    before = fake_master.connections
    await starts()
    await fake_master.until(lambda: fake_master.connections > before)
    (_, first) = fake_master.order[0]
    assert isinstance(first, api.Register)
    counted_s = {use.job: use.service_s for use in first.load.jobs}
    assert counted_s[job] >= reported_s.get(job, 0.2)
