"""Frameworks that schedule their own tasks behind one agent, ordered by a real master: the short one overtakes."""

from __future__ import annotations

import asyncio
import json
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from master.explain import command
from penstock.client import AgentClient
from penstock.wire.agent_api import StageProgress
from tests.integration.conftest import Daemon

Start = Callable[..., Any]
#: The duration of a monotask's work. It makes the order visible: a job's share of a slot, not the speed of a host.
WORK_S = 0.02
LONG, SHORT = 100, 12
SINKS_AFTER = 30


class Gated:
    """A framework: all its monotasks are ready from the beginning, each works for a while once it is granted."""

    def __init__(self, job: Any, tasks: int, said: int) -> None:
        """``said`` is the number of tasks that it reports as left."""
        self._job = job
        self.job = job.id
        self.left = tasks
        self.received = asyncio.Event()  # enough to sink to the second queue
        job.progress([StageProgress(stage="s", tasks=said, input_bytes=said << 20)])
        self._work = [asyncio.ensure_future(self._one()) for _ in range(tasks)]

    async def _one(self) -> None:
        async with self._job.monotask("cpu", 1 << 20, stage="s"):
            await asyncio.sleep(WORK_S)
        self.left -= 1
        if self.left <= LONG - SINKS_AFTER:
            self.received.set()

    async def done(self) -> None:
        await asyncio.gather(*self._work)

    async def stop(self) -> None:
        for one in self._work:
            one.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)


def explained(master: Daemon, job: str, tmp_path: Path) -> None:
    """Check that the live master gives the reason, and that its record can be replayed."""
    said = json.loads(master.get(f"/explain?job={job}"))
    assert (said["place"], said["of"]) == (2, 2)
    assert said["why"].startswith(said["ordering"])
    with pytest.raises(urllib.error.HTTPError, match="404"):
        master.get("/explain?job=nobody")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        master.get("/explain")
    path = tmp_path / "snapshot.json"
    path.write_bytes(master.get("/snapshot"))
    assert command.main([str(path)]) == 0


@pytest.mark.parametrize(
    ("ordering", "said_by_long", "overtakes"),
    [
        ({"ordering": "srjf"}, LONG, True),
        # It reports fewer tasks left, but has received more than the first threshold, as the short never does.
        (
            {"ordering": "las_mq", "las_mq_first_threshold_container_s": 0.7 * SINKS_AFTER * WORK_S},
            SHORT // 2,
            True,
        ),
        ({"ordering": "las_mq"}, SHORT // 2, False),
        ({"ordering": "fifo"}, LONG, False),
    ],
    ids=["srjf", "las_mq-next-queue", "las_mq-same-queue", "fifo"],
)
async def test_the_short_job_overtakes(
    start_master: Start,
    start_agent: Start,
    tmp_path: Path,
    ordering: dict[str, object],
    said_by_long: int,
    overtakes: bool,
) -> None:
    master: Daemon = await asyncio.to_thread(lambda: start_master(heartbeat_s=0.2, **ordering))
    daemon = await asyncio.to_thread(start_agent, cores=1, master=master.addresses["listen"])
    async with (
        await AgentClient.connect(daemon.socket, "long") as first,
        await AgentClient.connect(daemon.socket, "short") as second,
    ):
        long = Gated(await first.register_job("long"), LONG, said_by_long)
        await asyncio.wait_for(long.received.wait(), 60)
        short = Gated(await second.register_job("short"), SHORT, SHORT)
        await asyncio.wait_for(short.done(), 60)
        if overtakes:
            await asyncio.to_thread(explained, master, long.job, tmp_path)
        jobs = (await asyncio.to_thread(master.status))["jobs"].values()
        assert (long.left > 0) == overtakes, jobs
        assert [job["service_container_s"] > 0 for job in jobs if job["name"] == "long"] == [True]
        await long.stop()
