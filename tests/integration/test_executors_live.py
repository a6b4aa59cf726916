"""A real master and a real agent: a program that was an executor three times gets its predicted profile the fourth."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AgentClient
from penstock.model import ContainerSpec, EndedBy, KindAmounts, TaskRequest
from penstock.model.executor import Executor
from tests.integration.conftest import Daemon, until

SLOT_S = 0.2
#: The resources that are as in the last run depend on the use of three real runs.
OF_THE_RUNS = "mean of 3 runs(, .+ of the last)?|the last run"
#: Works for a while, then rests: about a second.
PROGRAM = """
import time
until = time.monotonic() + 0.5
while time.monotonic() < until:
    pass
time.sleep(0.5)
"""


@pytest.fixture
def master(start_master: Callable[..., Daemon]) -> Daemon:
    return start_master(node_timeout_s=30, executor_slot_s=SLOT_S)


def request() -> TaskRequest:
    return TaskRequest(
        task="e0",
        usage=KindAmounts(),
        memory_bytes=200_000_000,
        command=ContainerSpec(argv=("python3", "-c", PROGRAM), cpu_cores=1.0),
        executor=Executor(application="works/then-rests", input_bytes=7),
    )


async def run(client: AgentClient, number: int) -> None:
    job = await client.register_job(f"run-{number}")
    await asyncio.wait_for(job.admitted(), 60)
    await job.place("s", [request()])
    ended = await asyncio.wait_for(job.ended("e0"), 60)
    assert (ended.by, ended.exit_status) == (EndedBy.EXIT, 0), ended
    await job.end()


def profiles(master: Daemon, path: str = "") -> Any:
    return json.loads(master.get(f"/profiles{path}"))


async def test_the_fourth_run_gets_the_use_of_the_first_three(
    start_agent: Callable[..., Daemon], master: Daemon, tmp_path: Path
) -> None:
    agent = await asyncio.to_thread(
        start_agent, master=master.addresses["listen"], executor_slot_s=SLOT_S, sample_interval_s=0.1
    )
    assert profiles(master) == []
    async with await AgentClient.connect(agent.socket, "test") as client:
        for number in range(3):
            await run(client, number)
            # The store is written in the background, milliseconds after the end is reported.
            await asyncio.to_thread(until, lambda n=number + 1: any(one["runs"] == n for one in profiles(master)))
        (known,) = profiles(master)
        assert known["settings"] == [{"input_bytes": 7, "cores": 1.0, "memory_bytes": 200_000_000}]
        path = f"/{known['user']}/{known['application']}"
        assert path.endswith("/works/then-rests")
        before = profiles(master, path)
        (forecast,) = before["forecasts"]
        assert re.fullmatch(OF_THE_RUNS, forecast["by"])
        assert before["slot_s"] == SLOT_S
        assert [each["forecast"] for each in before["history"]] == [None, None, None]
        await run(client, 3)
        await asyncio.to_thread(until, lambda: len(profiles(master, path)["runs"]) == 4)
        after = profiles(master, path)
        assert re.fullmatch(OF_THE_RUNS, after["history"][-1]["forecast"]["by"])
    lines = master.log.read_text().splitlines()
    assert [line for line in lines if "run not kept" in line] == []
    placed = [json.loads(line) for line in lines if '"executor placed"' in line]
    assert [each["slots"] == 1 for each in placed] == [True, True, True, False]
    assert placed[3]["why"].startswith("minfrag: DRR ")
    assert re.fullmatch(OF_THE_RUNS, placed[3]["why"].rpartition("; ")[2])
    assert all(len(each["mean"]) == 4 and each["executors"] == 1 for each in after["runs"])


def test_for_an_unknown_application_the_known_ones_are_named(master: Daemon) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        profiles(master, "/nobody/nothing")
    assert caught.value.code == 404
    assert json.loads(caught.value.read()) == {"error": "no runs of 'nobody/nothing' are kept; those that are: none"}
    caught.value.close()
