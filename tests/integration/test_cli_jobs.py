"""``penstock jobs``, ``cancel``, ``explain`` and ``submit --detach`` against a real master and agents."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.client import AgentClient, Job, JobCancelled
from penstock.client.signals import Signals
from penstock.wire.errors import RpcError
from tests import warm_commands
from tests.integration.conftest import MasterProcess, agents, command, until

Start = Callable[..., Any]
COMMAND = (warm_commands.penstock(),)
LIMIT_S = 60


@dataclass
class Command:
    """The command at an agent, in this process: to start one for each call would take most of the time."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    async def run(self, agent: Any, *arguments: str, status: int = 0) -> tuple[str, str]:
        """Standard output and error."""
        self.monkeypatch.setenv("PENSTOCK_SOCKET", str(agent.socket))
        returned = await asyncio.wait_for(asyncio.to_thread(main, list(arguments)), LIMIT_S)
        said = self.capsys.readouterr()
        assert returned == status, said
        return said.out, said.err

    async def views(self, agent: Any, *arguments: str, status: int = 0) -> dict[str, Any]:
        """Return the output of ``penstock jobs``, by job."""
        out, _ = await self.run(agent, "jobs", "--json", *arguments, status=status)
        return {view["job"]: view for view in json.loads(out)}


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def ranked(host: Any) -> list[str]:
    """The jobs with a rank on a host, the first first."""
    containers = [each for each in host.status()["containers"] if each["rank"] is not None]
    return [str(each["job"]) for each in sorted(containers, key=lambda each: int(each["rank"]["rank"]))]


async def started(job: Job, *tasks: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        for task in tasks:
            await job.placed(task)


async def test_jobs_are_seen_explained_and_stopped_everywhere(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    alpha, beta = await agents(start_agent, master, tmp_path, "alpha", "beta")
    async with await AgentClient.connect(alpha.socket, "test") as client:
        doomed = await client.register_job("doomed", memory_bytes=10**6)
        other = await client.register_job("other")
        for job in (doomed, other):
            await asyncio.wait_for(job.admitted(), LIMIT_S)
        here, there = (
            command("here", "sleep", "900", nodes=("alpha",)),
            command("there", "sleep", "900", nodes=("beta",)),
        )
        await doomed.place("s", [here, there, command("waits", "true", nodes=("gamma",))])
        await other.place("s", [command("lives", "sleep", "900", nodes=("beta",))])
        await started(doomed, "here", "there")
        await started(other, "lives")
        granted = doomed.submit("network", 10**6)
        await asyncio.wait_for(granted.granted, LIMIT_S)

        seen = await penstock.views(beta)  # from another host: they are the user's, wherever they were registered
        assert {job: view["state"] for job, view in seen.items()} == {doomed.id: "running", other.id: "running"}
        known = seen[doomed.id]
        assert (known["tasks_ready"], known["tasks_running"], known["nodes"]) == (1, 2, ["alpha", "beta"])
        said = json.loads((await penstock.run(beta, "explain", doomed.id, "--json"))[0])
        assert said["placed"] == {"alpha": 1, "beta": 1}
        assert all("ursa" in task["why"] for task in said["last_placed"])
        shown = (await penstock.run(beta, "explain", doomed.id))[0]
        assert "here → alpha: ursa" in shown
        assert "task waits: " in shown

        _, stopped = await penstock.run(beta, "cancel", doomed.id, "nobody-1", status=4)
        assert stopped == "penstock cancel: there is no job 'nobody-1' (see `penstock jobs`)\n"
        with pytest.raises(JobCancelled, match="job 'doomed' was cancelled by "):
            await asyncio.wait_for(doomed.ended("here"), LIMIT_S)
        with pytest.raises(JobCancelled):
            doomed.submit("cpu", 1)
        for agent in (alpha, beta):
            status = await asyncio.to_thread(agent.status)
            assert doomed.id not in {job["job"] for job in status["jobs"]}
            running = {one["task"] for one in status["containers"] if one["ended"] is None}
            assert running == ({"lives"} if agent is beta else set()), "only the cancelled job was stopped"
        after = await penstock.views(alpha, doomed.id, other.id)
        assert (after[doomed.id]["state"], after[doomed.id]["outcome"]) == ("ended", "cancelled")
        assert after[doomed.id]["why"].startswith("cancelled by ")
        assert (after[other.id]["state"], after[other.id]["tasks_running"]) == ("running", 1)
        assert "has ended: cancelled" in (await penstock.run(alpha, "cancel", doomed.id, status=1))[1]
        _, late = await penstock.run(alpha, "jobs", other.id, "--wait", "--timeout", "0s", status=3)
        assert late == f"penstock jobs: the time is over; 1 of 1 not ended: {other.id}\n"
        assert "has ended, cancelled: cancelled by " in (await penstock.run(alpha, "explain", doomed.id))[0]
        assert "there is no job 'x-1'" in (await penstock.run(alpha, "explain", "x-1", status=4))[1]


async def test_a_cancelled_job_stays_cancelled_when_its_client_is_back_before_the_master(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    """The agent dies before the client has read the cancellation; the master is away when the client is back."""
    (alpha,) = await agents(start_agent, master, tmp_path, "alpha")
    async with await AgentClient.connect(alpha.socket, "test") as client:
        doomed, other = [await client.register_job(name) for name in ("doomed", "other")]
        for job in (doomed, other):
            await asyncio.wait_for(job.admitted(), LIMIT_S)
            await job.place("s", [command(job.name, "sleep", "900")])
            await started(job, job.name)
        before = doomed.id
        peer = client._link.peer()
        assert peer is not None and peer._transport is not None
        peer._transport.pause_reading()
        await penstock.run(alpha, "cancel", before)
        await asyncio.to_thread(master.stop)
        alpha.kill()
        peer._transport.abort()
        (alpha,) = await agents(start_agent, master, tmp_path, "alpha")
        with pytest.raises(JobCancelled, match="job 'doomed' was cancelled by "):
            await asyncio.wait_for(doomed.ended("doomed"), LIMIT_S)
        assert doomed.id == before
        status = await asyncio.to_thread(alpha.status)
        assert {job["job"] for job in status["jobs"]} == {other.id}, "the cancelled job was not registered anew"
        await asyncio.to_thread(master.start)
        await asyncio.wait_for(explained(client, other.id), LIMIT_S)
        views = await penstock.views(alpha, before, other.id)
        assert (views[before]["state"], views[before]["outcome"]) == ("ended", "cancelled")
        assert views[other.id]["state"] == "running", "it goes on"
        late = await client.register_job("late", job=before)
        assert isinstance(late.failure, JobCancelled), "the master refuses it, and the agent has it in its journal"


async def explained(client: AgentClient, job: str) -> dict[str, Any]:
    """Of a job that the master knows again before long."""
    while True:
        try:
            return await client.jobs.explain(job)
        except RpcError:  # the agent has no master yet, or that one does not know the job yet
            await asyncio.sleep(0.1)


async def test_jobs_are_put_first_by_hand(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    """The kernel's ranks follow: see ``rank`` of the containers."""
    (alpha,) = await agents(start_agent, master, tmp_path, "alpha")
    async with await AgentClient.connect(alpha.socket, "test") as client:
        jobs = [await client.register_job(name) for name in ("one", "two", "three")]
        for job in jobs:
            await asyncio.wait_for(job.admitted(), LIMIT_S)
            await job.place("s", [command(job.name, "sleep", "900")])
            await started(job, job.name)
        one, two, three = (job.id for job in jobs)
        out, _ = await penstock.run(alpha, "jobs", "--order", three, two)
        # Tests run as root, an operator.
        assert out == f"first of all jobs, until they are over: {three}, {two}\n"

        await asyncio.to_thread(until, lambda: ranked(alpha) == [three, two, one])
        said, _ = await penstock.run(alpha, "explain", three)
        assert "put first by root (penstock jobs --order)" in said

        await penstock.run(alpha, "jobs", "--order", two)
        master.kill()  # at once: an answered request is stored
        master.start()
        async with asyncio.timeout(LIMIT_S):
            assert "put first by root" in str(await explained(client, two))
        _, wrong = await penstock.run(alpha, "jobs", "--order", one, "nobody-1", status=4)
        assert wrong == "penstock jobs: there is no job 'nobody-1' (see `penstock jobs`)\n"
        assert json.loads((await penstock.run(alpha, "jobs", "--order", "--json"))[0]) == {"jobs": [], "of_all": True}


def session(agent: Any, directory: Path, script: str) -> subprocess.Popen[bytes]:
    """One as over ssh: when it ends, everything of it is hung up on, and then killed."""
    environment = {**os.environ, "PENSTOCK_SOCKET": str(agent.socket)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        ["/bin/sh", "-c", script], env=environment, cwd=directory, start_new_session=True, stdout=pipe, stderr=pipe
    )


async def test_a_detached_job_goes_on_without_its_terminal_and_over_a_restart_of_the_agent(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    [agent] = await agents(start_agent, master, tmp_path, "alpha")
    gate, up = tmp_path / "gate", tmp_path / "up"
    os.mkfifo(gate)
    os.mkfifo(up)
    job_file = tmp_path / "job.toml"
    job_file.write_text(
        f'name = "patient"\n[[task]]\nname = "a"\ncommand = "echo up >{up}; read line <{gate}"\n'
        '[[task]]\nname = "b"\ncommand = "echo in vain; echo to no avail >&2; exit 3"\nafter = ["a"]\n'
    )
    shell = session(agent, tmp_path, f"{' '.join(COMMAND)} submit --detach job.toml; exec sleep 900")
    job = (await asyncio.to_thread(shell.stdout.readline)).decode().strip()
    assert (await asyncio.to_thread(shell.stderr.readline)).startswith(b"penstock submit: see `penstock jobs")
    os.killpg(shell.pid, signal.SIGHUP)
    os.killpg(shell.pid, signal.SIGKILL)
    await asyncio.to_thread(shell.communicate, None, LIMIT_S)
    job_file.unlink()
    assert await asyncio.to_thread(up.read_text) == "up\n"
    [found] = (await penstock.views(agent, job)).values()
    assert (found["state"], found["name"], found["tasks_waiting"]) == ("running", "patient", 1)
    agent.kill()
    [again] = await agents(start_agent, master, tmp_path, "alpha")
    await asyncio.to_thread(until, lambda: again.status()["master"]["linked"], "it cannot be asked about jobs")
    await asyncio.to_thread(gate.write_text, "go\n")
    waited = (await penstock.views(again, job, "--wait", status=1))[job]
    assert (waited["outcome"], waited["stages_done"], waited["tasks_done"]) == ("failed", 2, 2)
    assert [(failure["task"], failure["exit_status"]) for failure in waited["failures"]] == [("b", 3)]
    results = json.loads((await penstock.run(again, "logs", "--json", job))[0])
    assert {task["task"]: task["state"] for task in results["tasks"]} == {"a": "done", "b": "failed"}
    printed, messages = await penstock.run(again, "logs", "--follow", job)
    assert printed == "--- b\nin vain\n"
    assert messages.startswith(f"--- b\nto no avail\npenstock submit: patient is job {job}\n")
    assert "penstock submit: b failed on alpha" in messages


async def test_a_job_whose_client_left_before_it_announced_work_did_not_succeed(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    (agent,) = await agents(start_agent, master, tmp_path, "alpha")
    async with await AgentClient.connect(agent.socket, "short") as client:
        job = await client.register_job("began")
    ended = (await penstock.views(agent, job.id, "--wait", status=1))[job.id]
    assert (ended["outcome"], ended["why"]) == ("disconnected", "its client short disconnected")


async def test_a_job_with_a_refused_task_failed(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    """One of many: the master knows only the tasks that ended well."""
    penstock.monkeypatch.setattr(Signals, "_catch", lambda self: None)  # it runs in a thread
    (agent,) = await agents(start_agent, master, tmp_path, "alpha")
    tasks = [f'[[task]]\nname = "t{number}"\nstage = "small"\ncommand = "true"\n' for number in range(12)]
    large = f'[[task]]\nname = "large"\ncommand = "true"\nenv = {{ LARGE = "{"x" * (9 << 20)}" }}\n'
    job_file = tmp_path / "job.toml"
    job_file.write_text('name = "refused"\n' + "".join(tasks) + large)
    _, err = await penstock.run(agent, "submit", str(job_file), status=1)
    job = err.partition("penstock submit: refused is job ")[2].split()[0]
    ended = (await penstock.views(agent, job, "--wait", status=1))[job]
    assert (ended["outcome"], ended["why"][:34]) == ("failed", "1 task refused; first large: frame")


async def test_logs_of_a_job_that_was_not_detached_are_those_of_its_tasks_where_they_ran(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    penstock.monkeypatch.setattr(Signals, "_catch", lambda self: None)  # it runs in a thread
    alpha, beta = await agents(start_agent, master, tmp_path, "alpha", "beta")
    job_file = tmp_path / "job.toml"
    job_file.write_text('name = "seen"\n[[task]]\nname = "t"\ncommand = "echo seen"\n')
    _, err = await penstock.run(alpha, "submit", str(job_file))
    job = err.partition("penstock submit: seen is job ")[2].split()[0]
    ran = [any(one["job"] == job for one in agent.status()["containers"]) for agent in (alpha, beta)]
    assert ran.count(True) == 1
    elsewhere = (
        f"penstock logs: job {job!r} was submitted on alpha{', where its messages are' if ran[1] else '; ask there'}\n"
    )
    assert await penstock.run(beta, "logs", job, status=0 if ran[1] else 4) == ("seen\n" if ran[1] else "", elsewhere)
    printed, said = await penstock.run(alpha, "logs", job, status=0 if ran[0] else 4)
    assert (printed, said[:26]) == (("seen\n", "") if ran[0] else ("", "penstock logs: this host k"))
    assert ran[0] or said.endswith("; its tasks ran on beta, where their output is\n")


async def test_logs_of_an_ended_job_name_the_other_nodes_of_its_tasks(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    nodes = ("alpha", "beta")
    alpha, _ = await agents(start_agent, master, tmp_path, *nodes)
    async with await AgentClient.connect(alpha.socket, "test") as client:
        job = await client.register_job("spread")
        await job.place("s", [command(f"on-{node}", "echo", "seen", nodes=(node,)) for node in nodes])
        for node in nodes:
            assert (await asyncio.wait_for(job.ended(f"on-{node}"), LIMIT_S)).ok
        await job.end()
    there = f"penstock logs: other tasks of job {job.id!r} ran on beta: `penstock logs {job.id}` there has more\n"
    for _ in ("this master", "the next one"):
        await penstock.views(alpha, job.id, "--wait")
        assert await penstock.run(alpha, "logs", job.id) == ("--- on-alpha\nseen\n", there)
        assert await asyncio.to_thread(master.stop) == 0
        await asyncio.to_thread(master.start)


async def test_a_detached_job_that_no_waiting_helps_ends_with_the_reason(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    (agent,) = await agents(start_agent, master, tmp_path, "alpha")
    job_file = tmp_path / "job.toml"
    job_file.write_text('name = "huge"\nmemory = "100T"\n[[task]]\nname = "a"\ncommand = "true"\n')
    job = (await penstock.run(agent, "submit", "--detach", str(job_file)))[0].strip()
    ended = (await penstock.views(agent, job, "--wait", status=1))[job]
    assert (ended["outcome"], ended["why"][:9]) == ("failed", "it wants ")


async def until_explained(client: AgentClient, job: str, words: str) -> dict[str, Any]:
    """Return the explanation of a job, once its sentence ends so: nodes report their ranks with their heartbeats."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            said = await explained(client, job)
            if said["sentence"].endswith(words):
                return said
            await asyncio.sleep(0.1)


async def test_the_place_of_a_job_and_its_reason_are_shown_everywhere(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    """A job that has used most is behind two others, and on its node behind a container of no job, too."""
    (alpha,) = await agents(start_agent, master, tmp_path, "alpha", job_wait_max_s=600)
    burn = "import time\nwhile time.process_time() < 0.8: pass\ntime.sleep(900)"
    async with await AgentClient.connect(alpha.socket, "test") as client:
        jobs = [await client.register_job(name) for name in ("burns", "two", "three")]
        for job in jobs:
            await asyncio.wait_for(job.admitted(), LIMIT_S)
            argv = (sys.executable, "-c", burn) if job.name == "burns" else ("sleep", "900")
            await job.place("s", [command(job.name, *argv)])
            await started(job, job.name)
        burns, two, three = (job.id for job in jobs)
        beside = (await penstock.run(alpha, "run", "--detach", "--", "sleep", "900"))[0].strip()

        before = f"before it {two} (two) and {three} (three)"
        ahead = f"after {two} (two), {three} (three) and container {beside} of no job"
        said = await until_explained(client, burns, f"{before}; on alpha it is fourth of 4 {ahead}.")
        assert said["sentence"].startswith("third of 3 by gittins: ")
        assert (
            "of service so far, queue 2: more than was expected of its announced tasks; before it" in said["sentence"]
        )
        assert (said["place"], said["of"], said["queue"], said["before_it"]) == (3, 3, 2, [two, three])
        [rank] = said["ranks"]
        assert (rank["node"], rank["rank"], rank["of"], rank["weight"]) == ("alpha", 4, 4, 1)
        assert rank["before"] == [two, three, beside] and rank["service_container_s"] > 0.5
        _, _, reason = said["reason"].partition(" of service")  # it may have used more by now
        shown = (await penstock.run(alpha, "explain", burns))[0]
        assert "\n  third of 3 by gittins: " in shown
        assert f" of service{reason}; {before}; on alpha it is fourth of 4 {ahead}.\n" in shown

        seen = await penstock.views(alpha)
        assert [seen[job]["rank"] for job in (two, three, burns)] == [1, 2, 3]
        assert seen[burns]["queue"] == 2 and seen[burns]["service_container_s"] > 0.5
        table = (await penstock.run(alpha, "jobs"))[0].splitlines()
        assert table[0].split()[:5] == ["job", "name", "state", "rank", "service"]
        assert [line.split()[3] for line in table[1:] if line.startswith(burns)] == ["3/3"]
        one = (await penstock.run(alpha, "jobs", burns))[0]
        assert "\n  rank 3 of 3: " in one and "\n  on alpha: rank 4 of 4, weight 1, " in one

        status = alpha.status()
        ranks = {row["job"]: row["rank"] for row in status["jobs"]}
        assert [ranks[job]["rank"] for job in (two, three, burns)] == [1, 2, 4]
        assert ranks[burns]["why"] == "in the master's order" and ranks[two]["weight"] > ranks[three]["weight"]
        [alone] = [each["rank"] for each in status["containers"] if each["container"] == beside]
        assert (alone["rank"], alone["why"]) == (3, "not a job of the master: among its jobs by CPU time")
        top = (await penstock.run(alpha, "top", "--once"))[0]
        # A remark wraps; beside a short name nothing else does.
        assert "rank 1 of 4 (in the master's order): " in " ".join(top.split())
        assert f" of service{reason}" in (await penstock.run(alpha, "status", "--cluster"))[0]
        assert b"penstock_ranked_jobs 4.0" in await asyncio.to_thread(alpha.get, "/metrics")
        metrics = (await asyncio.to_thread(master.running.get, "/metrics")).decode()
        assert "penstock_master_ranked_jobs 3.0" in metrics and 'penstock_master_queue_jobs{queue="2"} 1.0' in metrics
        assert 'penstock_master_rank_service_seconds{rank="3"} 0.' in metrics


async def test_a_command_that_ran_before_is_expected_to_need_as_much_again(
    start_agent: Start, master: MasterProcess, tmp_path: Path, penstock: Command
) -> None:
    """The node expects it of the next ``run``, the master of a job of that name."""
    (alpha,) = await agents(start_agent, master, tmp_path, "alpha")

    async def ran(*argv: str) -> str:
        return (await penstock.run(alpha, "run", "--detach", "--name", "burns", "--", *argv))[0].strip()

    def container(name: str) -> dict[str, Any]:
        [found] = [each for each in alpha.status()["containers"] if each["container"] == name]
        return found

    first = await ran(sys.executable, "-c", "import time\nwhile time.process_time() < 0.8: pass")
    ended = await asyncio.to_thread(until, lambda: container(first)["ended"])
    assert ended["cpu_seconds"] >= 0.8
    second = await ran("sleep", "900")
    reason = "not a job of the master: among its jobs by CPU time; as 1 earlier run, it needs about "
    await asyncio.to_thread(until, lambda: container(second)["rank"]["why"].startswith(reason))
    async with await AgentClient.connect(alpha.socket, "test") as client:
        job = await client.register_job("burns")
        said = await until_explained(client, job.id, f"(known: 1 job of burns by {getpass.getuser()}).")
        assert said["known_jobs"] == 1
        shown = (await penstock.run(alpha, "explain", job.id))[0]
        assert "half of the jobs like it that received as much ended within " in shown
