"""Schedulers and clients lend their processes for the job that the workers on their host have agreed upon."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

from penstock.engines.dask import lending, preload  # noqa: E402
from penstock.engines.dask import plugin as plugin_module  # noqa: E402
from penstock.engines.dask.lending import Lender, jobs_of  # noqa: E402
from penstock.engines.dask.settings import Settings  # noqa: E402
from penstock.wire.errors import bad_request  # noqa: E402
from tests.fakes.agent import FakeAgent  # noqa: E402

HERE = socket.gethostname()
WAIT_S = 60.0


@pytest.fixture
def agent(fake: FakeAgent) -> FakeAgent:
    return fake


@pytest.fixture
async def lend(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[Any], Lender]]:
    monkeypatch.setattr(lending, "LOOK_S", 0.001)
    monkeypatch.setattr(lending, "AGAIN_S", 0.001)
    made: list[Lender] = []

    def make(metadata: Callable[[], Any]) -> Lender:
        made.append(Lender(Settings(socket=str(agent.socket)), metadata))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_the_jobs_of_a_host_come_in_the_order_in_which_they_were_offered() -> None:
    said = {"other ": {"a": "1"}, f"{HERE} ": {"b": "2", "c": "3", "d": "2"}, "dask": True}
    assert list(jobs_of(said, HERE)) == ["2", "3"]
    assert list(jobs_of({}, HERE)) == []


@pytest.mark.parametrize("told", ["at once", "by an answer"])
async def test_it_is_lent_once_the_workers_have_a_job(agent: FakeAgent, lend: Any, told: str) -> None:
    said: dict[str, Any] = {}
    looks = 0

    def metadata() -> Any:
        nonlocal looks
        looks += 1
        return dict(said) or None

    async def answer() -> Any:
        return metadata()

    lend(metadata if told == "at once" else answer)
    async with asyncio.timeout(WAIT_S):
        while looks < 3:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)
        assert not agent.called("lend")
        said[f"{HERE} "] = {"tcp://1": "job-1"}
        await agent.until(lambda: bool(agent.called("lend")))
    assert (agent.called("lend")[0].job, agent.called("lend")[0].pid) == ("job-1", 0)


async def test_a_job_that_is_over_is_left_for_the_next_of_the_host(agent: FakeAgent, lend: Any) -> None:
    agent.refuse["lend"] = bad_request("unknown job 'job-1'", field="job")
    lend(lambda: {f"{HERE} ": {"tcp://1": "job-1", "tcp://2": "job-2"}})
    async with asyncio.timeout(WAIT_S):
        await agent.until(lambda: {each.job for each in agent.called("lend")} == {"job-1", "job-2"})
    assert [each.job for each in agent.called("lend")].count("job-1") == 1


async def test_an_agent_that_is_away_is_asked_again(agent: FakeAgent, lend: Any) -> None:
    await agent.stop()
    tried = asyncio.Event()

    def metadata() -> Any:
        tried.set()
        return {f"{HERE} ": {"tcp://1": "job-1"}}

    lend(metadata)
    async with asyncio.timeout(WAIT_S):
        await tried.wait()
        await agent.start()
        await agent.until(lambda: bool(agent.called("lend")))


async def test_settings_decide_whether(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(plugin_module, "Lender", lambda settings, metadata: settings)
    assert plugin_module.lend_this(dict) == Settings()
    assert plugin_module.lend_this(dict, rank=False) is None
    assert plugin_module.lend_this(dict, enabled=False) is None
    with dask.config.set({"penstock.rank": "perhaps"}):
        assert plugin_module.lend_this(dict) is None
    assert "penstock.rank in Dask's configuration must be true or false" in caplog.text


@contextlib.asynccontextmanager
async def _scheduler_of_a_job() -> AsyncIterator[distributed.Scheduler]:
    """Yield a scheduler whose metadata offer a job of this host."""
    nowhere = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    async with distributed.Scheduler(**nowhere) as scheduler:
        scheduler.set_metadata(["penstock", f"{HERE} ", "tcp://1"], "job-1")
        yield scheduler


async def test_a_client_with_the_preload_is_lent_until_it_closes(
    monkeypatch: pytest.MonkeyPatch, agent: FakeAgent
) -> None:
    monkeypatch.setenv("PENSTOCK_SOCKET", str(agent.socket))
    with dask.config.set({"distributed.client.preload": ["penstock.engines.dask.preload"]}):
        async with _scheduler_of_a_job() as scheduler:
            async with distributed.Client(scheduler.address, asynchronous=True), asyncio.timeout(WAIT_S):
                await agent.until(lambda: bool(agent.called("lend")))
                assert len(preload._lenders) == 1
            assert not preload._lenders


async def test_a_nanny_with_the_preload_is_lent_before_it_starts_its_worker(
    monkeypatch: pytest.MonkeyPatch, agent: FakeAgent
) -> None:
    monkeypatch.setenv("PENSTOCK_SOCKET", str(agent.socket))
    with dask.config.set({"distributed.nanny.preload": ["penstock.engines.dask.preload"]}):
        async with _scheduler_of_a_job() as scheduler:
            nanny = distributed.Nanny(scheduler.address, host="127.0.0.1", dashboard_address=None)
            await nanny.rpc.start()  # as a server does at its start
            await nanny.preloads.start()
            async with asyncio.timeout(WAIT_S):
                await agent.until(lambda: bool(agent.called("lend")))
            assert nanny.process is None
            await nanny.preloads.teardown()
            assert not preload._lenders
            await nanny.close()


async def test_a_nanny_whose_workers_have_jobs_of_their_own_is_not_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers would stay in the container of another worker's job."""
    monkeypatch.setattr(plugin_module, "Lender", lambda settings, metadata: settings)
    monkeypatch.setattr(preload, "_lenders", {})
    nanny, client = object.__new__(distributed.Nanny), object.__new__(distributed.Client)
    with dask.config.set({"penstock.share-job": False}):
        await preload.dask_setup(nanny)
        await preload.dask_setup(client)
    assert preload._lenders == {id(nanny): None, id(client): Settings(share_job=False)}
