"""The stand-in's requests to the agent, and its end, with an agent that only gives the test's answers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AgentUnavailable
from penstock.engines.spark import stand_in
from penstock.engines.spark.executor_command import BACKEND, ExecutorCommand, read
from penstock.engines.spark.settings import Settings
from penstock.model import Ended, EndedBy, Executor, Sizing
from penstock.wire.agent_api import Done, Launch, TaskStuck
from penstock.wire.errors import refused
from tests.fakes.agent import FakeAgent
from tests.spark_pages import APPLICATION, spark_pages, stage

COMMAND = read(("-Xmx1g", BACKEND, "--executor-id", "3", "--cores", "2", "--app-id", APPLICATION))
WAIT_S = 60


@pytest.fixture
def agent(fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    monkeypatch.setenv("PENSTOCK_SOCKET", str(fake.socket))
    monkeypatch.delenv("SPARK_LOG_URL_STDOUT", raising=False)
    return fake


def start_stand_in(settings: Settings | None = None, command: ExecutorCommand = COMMAND) -> asyncio.Task[int]:
    """Return the stand-in of an executor of an application ``sort``."""
    said = settings or Settings(application="sort")
    return asyncio.get_running_loop().create_task(stand_in._run("/opt/java/bin/java", command, said))


async def asked(agent: FakeAgent) -> Any:
    """Return its request for placement."""
    async with asyncio.timeout(WAIT_S):
        await agent.until(lambda: bool(agent.placed))
    [placing] = agent.called("place")
    return placing


async def test_less_than_a_core_for_each_task_may_be_asked_for(agent: FakeAgent) -> None:
    running = start_stand_in(Settings(application="sort", cores=0.5))
    placing = await asked(agent)
    assert placing.tasks[0].command.cpu_cores == 0.5
    assert "-XX:ActiveProcessorCount=2" in placing.tasks[0].command.argv, "it runs as many tasks all the same"
    agent.end_task(placing.job, placing.tasks[0].task, Ended(by=EndedBy.EXIT, exit_status=0))
    assert await asyncio.wait_for(running, WAIT_S) == 0


async def test_it_asks_for_the_executor_on_its_own_node(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_SPARK", "kept")
    running = start_stand_in(Settings(application="sort", input_bytes=7, sizing=Sizing.SHARED))
    placing = await asked(agent)
    [request] = placing.tasks
    assert (request.task, request.nodes, request.memory_bytes) == ("executor-3", ("fake",), (1024 + 384) << 20)
    assert request.executor == Executor(
        application="sort", input_bytes=7, run=APPLICATION, sizing=Sizing.SHARED, jvm=True
    )  # fmt: skip
    spec = request.command
    assert spec.argv == ("/opt/java/bin/java", *COMMAND.elastic())
    assert (spec.cpu_cores, spec.memory_bytes, spec.cwd) == (2.0, request.memory_bytes, str(Path.cwd()))
    assert spec.env["OF_SPARK"] == "kept"
    assert len(spec.stdio) == 32
    agent.end_task(placing.job, request.task, Ended(by=EndedBy.EXIT, exit_status=0))
    assert await asyncio.wait_for(running, WAIT_S) == 0
    assert [each.name for each in agent.called("register_job")] == ["sort"]


async def test_a_variable_that_is_not_utf8_is_left_out_and_named(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEGACY", os.fsdecode(b"caf\xe9"))
    running = start_stand_in()
    placing = await asked(agent)
    assert "LEGACY" not in placing.tasks[0].command.env
    assert capsys.readouterr().err == "penstock: left out of the environment, as not UTF-8: LEGACY\n"
    agent.end_task(placing.job, "executor-3", Ended(by=EndedBy.EXIT, exit_status=0))
    assert await asyncio.wait_for(running, WAIT_S) == 0


async def test_in_a_directory_that_is_not_utf8_it_runs_ungated(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / os.fsdecode(b"caf\xe9")
    directory.mkdir()
    monkeypatch.chdir(directory)
    with pytest.raises(stand_in.Ungated, match="is not UTF-8"):
        await asyncio.wait_for(start_stand_in(), WAIT_S)
    assert agent.called("place") == []


@pytest.mark.parametrize(
    ("ended", "status", "says"),
    [
        (Ended(by=EndedBy.EXIT, exit_status=3), 3, ""),
        (Ended(by=EndedBy.SIGNAL, exit_status=143), 143, ""),
        (Ended(by=EndedBy.OOM, exit_status=137), 137, "the executor ended: oom"),
        (Ended(by=EndedBy.FAILED, reason="no such file"), 137, "the executor ended: failed: no such file"),
    ],
)
async def test_it_ends_as_the_executor_does(
    agent: FakeAgent, capsys: pytest.CaptureFixture[str], ended: Ended, status: int, says: str
) -> None:
    running = start_stand_in()
    agent.end_task((await asked(agent)).job, "executor-3", ended)
    assert await asyncio.wait_for(running, WAIT_S) == status
    assert capsys.readouterr().err == (f"penstock: {says}\n" if says else "")


async def test_sparks_pages_name_the_application_and_its_stages(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spark_pages() as pages:
        monkeypatch.setenv("SPARK_LOG_URL_STDOUT", pages.log_url)
        pages.stages = [stage(0, 4, 4, "COMPLETE"), stage(1, 8, 3)]
        running = start_stand_in(Settings())
        placing = await asked(agent)
        assert placing.tasks[0].executor.application == "word count"
        async with asyncio.timeout(WAIT_S):
            await agent.until(lambda: bool(agent.called("progress")))
        [progress] = agent.called("progress")
        assert [(each.stage, each.tasks, each.done) for each in progress.stages] == [("0", 4, 4), ("1", 8, 3)]
        agent.end_task(placing.job, "executor-3", Ended(by=EndedBy.EXIT, exit_status=0))
        assert await asyncio.wait_for(running, WAIT_S) == 0


async def test_an_application_without_a_name_is_its_id(agent: FakeAgent, capsys: pytest.CaptureFixture[str]) -> None:
    running = start_stand_in(Settings())
    placing = await asked(agent)
    assert placing.tasks[0].executor.application == APPLICATION
    assert "set spark.executorEnv.PENSTOCK_APPLICATION" in capsys.readouterr().err
    agent.end_task(placing.job, "executor-3", Ended(by=EndedBy.EXIT, exit_status=0))
    await asyncio.wait_for(running, WAIT_S)


async def test_a_signal_goes_on_when_the_executor_does_not_end_by_itself(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_in, "_BY_ITSELF_S", 0.0)
    running = start_stand_in()
    placing = await asked(agent)
    peer = agent.placed[placing.job, "executor-3"]
    made = agent._launch(peer, Launch(container=placing.tasks[0].command))
    agent.document = {"containers": [{"container": made.container, "job": placing.job, "task": "executor-3"}]}
    container = agent.containers[made.container]
    async with asyncio.timeout(WAIT_S):
        while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # noqa: ASYNC110 - the installation of a handler makes no event
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await agent.until(lambda: bool(container.signals))
    assert container.signals == [signal.SIGTERM]
    agent.end_task(placing.job, "executor-3", Ended(by=EndedBy.EXIT, exit_status=143))
    assert await asyncio.wait_for(running, WAIT_S) == 143


async def test_waiting_for_the_admission_is_reported_with_its_reason(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stand_in, "_PATIENCE_S", 0.0)
    agent.admits = False
    agent.waits = "eve runs 4 jobs, which is user_max_jobs"
    running = start_stand_in()
    said = ""
    async with asyncio.timeout(WAIT_S):
        while not said:
            await asyncio.sleep(0)
            said += capsys.readouterr().err
    assert said == "penstock: still waits for its place: eve runs 4 jobs, which is user_max_jobs\n"
    agent.admit(next(iter(agent.known_jobs)))
    placing = await asked(agent)
    agent.end_task(placing.job, "executor-3", Ended(by=EndedBy.EXIT, exit_status=0))
    assert await asyncio.wait_for(running, WAIT_S) == 0


async def test_waiting_for_a_place_is_reported(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stand_in, "_PATIENCE_S", 0.0)
    agent.places = False
    running = start_stand_in()
    placing = await asked(agent)
    said = ""
    async with asyncio.timeout(WAIT_S):
        while "still waits" not in said:
            await asyncio.sleep(0)
            said += capsys.readouterr().err
    agent.end_task(placing.job, "executor-3", Ended(by=EndedBy.REFUSED, reason="too large"))
    assert await asyncio.wait_for(running, WAIT_S) == 1
    assert "too large" in capsys.readouterr().err


@pytest.mark.parametrize("refusal", ["", "it has limits of its own"])
async def test_a_driver_on_this_host_is_lent_for_its_executor_s_job(
    agent: FakeAgent, capsys: pytest.CaptureFixture[str], refusal: str
) -> None:
    if refusal:
        agent.refuse["lend"] = refused(refusal)
    with socket.create_server(("127.0.0.1", 0)) as driver:
        url = f"spark://CoarseGrainedScheduler@127.0.0.1:{driver.getsockname()[1]}"
        running = start_stand_in(command=replace(COMMAND, driver_url=url))
        placing = await asked(agent)
        async with asyncio.timeout(WAIT_S):
            await agent.until(lambda: bool(agent.called("lend")))
    assert [(each.job, each.pid) for each in agent.called("lend")] == [(placing.job, os.getpid())]
    agent.end_task(placing.job, "executor-3", Ended(by=EndedBy.EXIT, exit_status=0))
    assert await asyncio.wait_for(running, WAIT_S) == 0
    said = f"penstock: the driver, process {os.getpid()}, is not ranked with its executors: {refusal}\n"
    assert capsys.readouterr().err == (said if refusal else "")


async def test_late_without_room_is_reported(agent: FakeAgent, capsys: pytest.CaptureFixture[str]) -> None:
    running = start_stand_in()
    placing = await asked(agent)
    peer = agent.placed[placing.job, "executor-3"]
    peer.notify("task_stuck", TaskStuck(job=placing.job, task="executor-3", helper="executor-4", node="beta"))
    agent.end_task(placing.job, "executor-3", Ended(by=EndedBy.EXIT, exit_status=0))
    await asyncio.wait_for(running, WAIT_S)
    assert "beta has more room" in capsys.readouterr().err


async def test_an_executor_that_the_agent_refuses_runs_ungated(agent: FakeAgent) -> None:
    agent.refuse["place"] = refused("not today")
    with pytest.raises(stand_in.Ungated, match="not today"):
        await asyncio.wait_for(start_stand_in(), WAIT_S)


def lose_job(agent: FakeAgent) -> None:
    """Lose the connection, to an agent that does not take the job back."""
    agent.refuse["register_job"] = refused("the job has ended")
    for peer in list(agent._peers):
        peer.close()


async def test_a_placed_executor_whose_job_a_restarted_agent_refuses_is_not_run_a_second_time(
    agent: FakeAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start_stand_in()
    await asked(agent)
    lose_job(agent)
    assert await asyncio.wait_for(running, WAIT_S) == 1
    assert capsys.readouterr().err == "penstock: the job has ended\n"


async def test_one_that_may_have_been_placed_is_not_run_a_second_time(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def lost(peer: Any, request: Any) -> Done:
        lose_job(agent)
        await agent.until(lambda: peer.closed)  # before the answer is written
        return Done()

    monkeypatch.setattr(agent, "_place", lost)
    assert await asyncio.wait_for(start_stand_in(), WAIT_S) == 1
    assert len(agent.called("place")) == 1, "the job is over: its request is not repeated"
    assert capsys.readouterr().err == "penstock: the job has ended\n"


async def test_one_that_is_cancelled_before_its_admission_ends(
    agent: FakeAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.admits = False
    running = start_stand_in()
    async with asyncio.timeout(WAIT_S):
        await agent.until(lambda: bool(agent.known_jobs))
    agent.cancel_job(*agent.known_jobs, by="alice")
    assert await asyncio.wait_for(running, WAIT_S) == 1
    assert capsys.readouterr().err == "penstock: job 'sort' was cancelled by alice\n"


async def test_without_a_master_it_runs_ungated(agent: FakeAgent) -> None:
    agent.has_master = False
    with pytest.raises(stand_in.Ungated, match="no master"):
        await asyncio.wait_for(start_stand_in(), WAIT_S)


async def test_without_an_agent_it_runs_ungated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "none.sock"))
    with pytest.raises(AgentUnavailable):
        await asyncio.wait_for(start_stand_in(), WAIT_S)


def test_a_setting_that_cannot_be_read_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_INPUT_BYTES", "much")
    argv = ["java", "-Xmx1g", BACKEND, "--executor-id", "3", "--cores", "2", "--app-id", APPLICATION]
    assert stand_in.main(argv) == 2
    assert capsys.readouterr().err.startswith("penstock: PENSTOCK_INPUT_BYTES: 'much'")
