"""Jobs that end while their host has no link to the master: the agent keeps and reports their ends, and the master
lists each with its outcome.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import timeit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import agent.master_link
from agent.journal import Journal
from agent.master_link import MasterLink
from penstock.client import AgentClient
from penstock.config.endpoint import UnixEndpoint
from penstock.transport import RpcPeer
from penstock.wire import master_api as api
from penstock.wire.connection import read_params
from penstock.wire.job_end_api import JobAtEnd
from tests.integration.conftest import Daemon, MasterProcess, agents, command, penstock, until
from tests.integration.test_ends_until_heard import Master, linked, shell

AT_END = JobAtEnd(name="sort", user="eve", submitted_at=7.0)
ENDED = api.JobEnded(job="n-1", use=api.JobUse(job="n-1", service_s=5.0, last=True), at_end=AT_END)


class Reader(Master):
    """A master that keeps the reports of ended jobs, and reads all of their fields unless it is ``older``."""

    def __init__(self, *, older: bool = False) -> None:
        super().__init__()
        self.older = older
        self.ends: list[api.JobEnded] = []

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        answer = super().request(peer, method, params)
        if method == "job_ended":
            self.ends.append(read_params(params, api.JobEnded))
        if isinstance(answer, api.Registered) and not self.older:
            return structs.replace(answer, job_lasts=True, job_failed=True, jobs_at_end=True)
        return answer


class Hung(Reader):
    """A master that answers a registration only."""

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        if method == "register":
            return super().request(peer, method, params)
        self.heard[-1].append(method)
        self.news.set()
        return asyncio.Event().wait()


async def test_an_end_that_could_not_be_sent_is_reported_with_the_job_and_its_time(tmp_path: Path) -> None:
    before = time.time()
    master = Reader()
    async with linked(tmp_path, [], "job_ended", ENDED, master=master):
        after = time.time()
    [ended] = master.ends
    assert ended.at_end is not None
    assert before <= ended.at_end.ended_at <= after
    assert structs.replace(ended.at_end, ended_at=0.0) == AT_END


async def test_an_end_is_reported_with_the_job_only_if_the_master_may_have_missed_it(tmp_path: Path) -> None:
    """The first connection breaks before the answer."""
    master = Reader()
    async with linked(tmp_path, [], "heartbeat", master=master) as (_, link):
        link.send(ENDED)
        await master.until(1, "job_ended")
    assert [ended.at_end is not None for ended in master.ends] == [False, True]


async def test_an_older_master_gets_no_field_that_it_does_not_know(tmp_path: Path) -> None:
    master = Reader(older=True)
    async with linked(tmp_path, [], "job_ended", ENDED, master=master):
        pass
    assert master.ends == [api.JobEnded(job="n-1")]


async def test_an_end_is_in_the_journal_until_it_is_answered(tmp_path: Path) -> None:
    died = MasterLink(shell([]), UnixEndpoint(Path("/nowhere")), Journal(tmp_path / "journal"))
    died.send(ENDED)
    master = Reader()
    async with linked(tmp_path, [], "job_ended", master=master):
        await master.until(1, "heartbeat")  # the first connection breaks before the answer
    assert [ended.job for ended in master.ends] == ["n-1", "n-1"]
    async with linked(tmp_path, [], "heartbeat", master=Reader()) as (following, _):
        assert "job_ended" not in following.heard[0]


async def test_an_end_that_was_sent_is_reported_by_the_next_agent_if_no_answer_came(tmp_path: Path) -> None:
    """The link was not lost before the agent died, and the master was killed before it had stored the end."""
    async with linked(tmp_path, [], "heartbeat", master=Hung()) as (master, link):
        link.send(ENDED)
        await master.until(0, "job_ended")
        shutil.copytree(tmp_path / "journal", tmp_path / "died" / "journal")
    following = Reader()
    async with linked(tmp_path / "died", [], "job_ended", master=following):
        pass
    [ended] = following.ends
    assert (ended.job, ended.at_end is not None) == ("n-1", True)


async def test_the_end_of_a_job_is_written_to_the_journal_once_and_removed_once(tmp_path: Path) -> None:
    async with linked(tmp_path, [], "heartbeat", master=Reader()) as (master, link):
        link.send(ENDED)  # the first connection breaks before the answer
        await master.until(1, "job_ended")
        await asyncio.wait(set(link._unanswered), timeout=30)
        assert link._journal.writes == 2
        assert link._journal.read("job_ended", api.JobEnded) == []


async def test_of_too_many_ends_the_earliest_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent.master_link, "_MOST_JOBS_ENDED", 2)
    died = MasterLink(shell([]), UnixEndpoint(Path("/nowhere")), Journal(tmp_path / "journal"))
    for number in range(4):
        died.send(structs.replace(ENDED, job=f"n-{number}"))
    assert [ended.job for ended in Journal(tmp_path / "journal").read("job_ended", api.JobEnded)] == ["n-2", "n-3"]
    assert [ended.job for ended in died._kept.values() if isinstance(ended, api.JobEnded)] == ["n-2", "n-3"]


async def test_the_earliest_end_is_found_as_fast_however_many_were_dropped(tmp_path: Path) -> None:
    """In a mapping that keeps the places of its removed entries, it is behind all of them."""
    link = MasterLink(shell([]), UnixEndpoint(Path("/nowhere")), Journal(tmp_path / "journal"))
    for number in range(2 * agent.master_link._MOST_JOBS_ENDED):
        link.send(structs.replace(ENDED, job=f"n-{number}"))

    def first_s(of: Mapping[str, None]) -> float:
        return min(timeit.repeat(lambda: next(iter(of)), number=100, repeat=20))

    kept = link._unreported
    assert len(kept) == agent.master_link._MOST_JOBS_ENDED
    assert first_s(kept) < 8 * first_s(dict.fromkeys(kept))


async def test_the_service_of_a_job_whose_tasks_were_done_is_not_reported_anew(tmp_path: Path) -> None:
    """The master would take 0 for the beginning of another count, and count the job's service twice."""
    died = MasterLink(shell([]), UnixEndpoint(Path("/nowhere")), Journal(tmp_path / "journal"))
    died.send(api.TasksDone(job="n-1", tasks=["t"]))
    died.send(ENDED)
    async with linked(tmp_path, [], "tasks_done", master=Reader()) as (master, _):
        assert master.heard[0][:2] == ["register", "tasks_done"]
        assert master.registered.load.jobs == []


def listed(host: Daemon) -> dict[str, tuple[str, str]]:
    """Return the ended jobs that a user sees: the name → the outcome and the reason."""
    found = json.loads(penstock(host, "jobs", "--json").stdout)
    return {job["name"]: (job["outcome"], job["why"]) for job in found if job["state"] == "ended"}


@pytest.mark.parametrize("dies", ["the master", "the agent, too"])
async def test_jobs_that_end_without_a_master_are_listed_by_the_next_one(
    start_agent: Callable[..., Any], master: MasterProcess, tmp_path: Path, dies: str
) -> None:
    (host,) = await agents(start_agent, master, tmp_path, "alpha")
    async with await AgentClient.connect(host.socket, "test") as client:
        async with await AgentClient.connect(host.socket, "leaves") as leaves:
            done, stopped = await client.register_job("done"), await client.register_job("stopped")
            broken = await leaves.register_job("broken")
            for job in (done, stopped, broken):
                await asyncio.wait_for(job.admitted(), 30)
            await stopped.place("s", [command("t", "true", nodes=("nowhere",))])
            master.kill()
            await done.end()
            await stopped.end()
        if dies != "the master":
            await asyncio.to_thread(lambda: until(lambda: broken.id not in host.status()["jobs"]))
            host.kill()
            (host,) = await agents(start_agent, master, tmp_path, "alpha")
        master.start()
        await asyncio.to_thread(lambda: until(lambda: host.status()["master"]["linked"]))
        found = await asyncio.to_thread(lambda: until(lambda: len(now := listed(host)) == 3 and now))
    assert found == {
        "done": ("succeeded", ""),
        "stopped": ("cancelled", "its framework ended it before it was done"),
        "broken": ("disconnected", "its client leaves disconnected"),
    }
