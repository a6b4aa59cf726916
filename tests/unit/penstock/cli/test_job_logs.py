"""`penstock logs JOB`: the output of its tasks, the messages of its manager, and its results."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.transport.peer import connect_unix
from penstock.wire.agent_api import Launch, Launched, Welcome
from penstock.wire.errors import refused, unavailable
from penstock.wire.jobs_api import MOST_NODES, JobView
from tests.fakes.agent import FakeAgent, FakeContainer
from tests.unit.penstock.cli.conftest import Penstock

JOB = "fake-1"
DONE, FAILED = Ended(by=EndedBy.EXIT, exit_status=0), Ended(by=EndedBy.EXIT, exit_status=3)
HERE_YET = "this host has no output of job 'fake-1' yet; --follow waits for it"
VIEW = JobView(job=JOB, name="words", user="tester", origin="fake", state="running", submitted_at=1.0, tasks_running=2)


class Host:
    """The containers of a job on the fake agent's host."""

    def __init__(self, fake: FakeAgent) -> None:
        self._fake = fake
        fake.document["containers"] = []
        fake.views = [VIEW]

    async def add(self, task: str = "", *, name: str = "", user: str = "tester", **outputs: bytes) -> FakeContainer:
        """Start a container of a task, or the manager; the latest one comes first, as in the agent's document."""
        peer = await connect_unix(str(self._fake.socket), self._fake)
        await peer.request("hello", {"protocol": 1}, Welcome)
        spec = ContainerSpec(argv=("x",), detach=True)
        made = (await peer.request("launch", Launch(container=spec), Launched)).container
        of_job = {"job": JOB, "task": task} if task else {"job": "", "task": ""}
        row: dict[str, Any] = {"container": made, "name": name or task, "user": user, **of_job}
        containers = self._fake.document["containers"]
        containers.insert(0, row | {"started_at": float(len(containers)), "ended": None})
        self._fake.outputs_of[made] = {"stdout": b"", "stderr": b"", **outputs}
        return self._fake.containers[made]

    async def manager(self, user: str = "tester", **outputs: bytes) -> FakeContainer:
        return await self.add(name=f"submit {JOB}", user=user, **outputs)

    def end(self, container: FakeContainer, ended: Ended) -> None:
        [row] = [row for row in self._fake.document["containers"] if row["container"] == container.id]
        row["ended"] = {"by": ended.by.value}
        self._fake.end_container(container, ended)

    def see(self, **changed: Any) -> None:
        """Change what the master knows of the job."""
        self._fake.views = [msgspec.structs.replace(VIEW, **changed)]

    def write(self, container: FakeContainer, data: bytes) -> None:
        self._fake.outputs_of[container.id]["stdout"] += data


@pytest.fixture
def host(fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> Host:
    for name in ("_LOOK_S", "_LIST_S"):
        monkeypatch.setattr(f"penstock.cli.job_logs.{name}", 0.01)
    return Host(fake)


async def test_the_output_of_each_task_and_why_the_job_failed(host: Host, penstock: Penstock) -> None:
    manager = await host.manager(stdout=b'{"tasks": []}', stderr=b"penstock submit: b failed: exit status 3\n")
    a = await host.add("a", stdout=b"one\ntwo", stderr=b"harmless\n")
    b = await host.add("b", stdout=b"three\n", stderr=b"no such file\n")
    for container, ended in ((a, DONE), (b, FAILED), (manager, FAILED)):
        host.end(container, ended)
    messages = "--- b\nno such file\npenstock submit: b failed: exit status 3\n"
    assert await penstock("logs", JOB) == (0, "--- a\none\ntwo\n--- b\nthree\n", messages)
    assert (await penstock("logs", "--tail", "1", JOB))[1] == "--- a\ntwo\n--- b\nthree\n"
    status, out, _ = await penstock("logs", "--stderr", JOB)
    assert (status, out) == (0, "--- a\nharmless\n--- b\nno such file\n")


async def test_the_only_task_of_a_job_has_no_heading_and_a_name_cannot_control_the_terminal(
    host: Host, fake: FakeAgent, penstock: Penstock
) -> None:
    fake.refuse["jobs"] = unavailable("there is no master")
    await host.add("\x1b[2J", stdout=b"one\n")
    assert await penstock("logs", JOB) == (0, "one\n", "")
    await host.add("b", stdout=b"two\n")
    assert await penstock("logs", JOB) == (0, "--- �[2J\none\n--- b\ntwo\n", "")


async def test_a_job_is_followed_to_its_end_with_the_tasks_that_come_meanwhile(
    host: Host, fake: FakeAgent, penstock: Penstock
) -> None:
    manager = await host.manager(stderr=b"penstock submit: words is job fake-1\n")
    a = await host.add("a", stdout=b"one\n")
    printing = asyncio.ensure_future(penstock("logs", "--follow", JOB))
    await fake.until(lambda: len(fake.called("status")) >= 4)
    assert not printing.done()
    b = await host.add("b", stdout=b"two\n")
    await fake.until(lambda: any(call.container == b.id for call in fake.called("attach")))
    host.write(a, b"three\n")
    host.end(a, DONE)
    host.end(b, DONE)
    host.end(manager, DONE)
    status, out, err = await printing
    assert (status, err) == (0, "penstock submit: words is job fake-1\n")
    assert out.startswith("--- a\none\n") and "--- b\ntwo\n" in out
    assert sorted(line for line in out.splitlines() if not line.startswith("---")) == ["one", "three", "two"]


async def test_a_job_that_was_not_detached_is_followed_until_the_master_knows_its_end(
    host: Host, fake: FakeAgent, penstock: Penstock
) -> None:
    a = await host.add("a", stdout=b"one\n")
    host.end(a, DONE)
    printing = asyncio.ensure_future(penstock("logs", "--follow", JOB))
    await fake.until(lambda: len(fake.called("jobs")) >= 3)
    assert not printing.done(), "other tasks may still come"
    host.see(state="ended")
    assert await printing == (0, "--- a\none\n", "")


async def test_a_job_is_followed_while_its_master_is_away_or_does_not_know_it_yet(
    host: Host, fake: FakeAgent, penstock: Penstock
) -> None:
    host.end(await host.add("a", stdout=b"one\n"), DONE)
    printing = asyncio.ensure_future(penstock("logs", "--follow", JOB))
    for away in (True, False):
        await fake.until(lambda: len(fake.called("jobs")) >= 3)
        fake.calls.clear()
        fake.refuse = {"jobs": unavailable("the master is away")} if away else {}
        fake.views = []
    await fake.until(lambda: len(fake.called("jobs")) >= 3)
    assert not printing.done()
    host.see(state="ended")
    assert await printing == (0, "--- a\none\n", "")


async def test_a_master_that_stays_away_is_not_waited_for_for_ever(
    host: Host, fake: FakeAgent, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.job_logs._PATIENCE_S", 0.02)
    a = await host.add("a", stdout=b"one\n")
    printing = asyncio.ensure_future(penstock("logs", "--follow", JOB))
    await fake.until(lambda: len(fake.called("jobs")) >= 3)
    fake.views = []
    fake.calls.clear()
    await fake.until(lambda: len(fake.called("jobs")) >= 5)
    assert not printing.done(), "a task runs here"
    host.end(a, DONE)
    away = "the master is away, or was restarted meanwhile and does not know how it ended"
    assert await printing == (1, "--- a\none\n", f"penstock logs: job 'fake-1': {away}\n")


async def test_a_job_whose_manager_was_killed_is_followed_until_its_tasks_have_ended(
    host: Host, fake: FakeAgent, penstock: Penstock
) -> None:
    manager, a = await host.manager(), await host.add("a", stdout=b"one\n")
    printing = asyncio.ensure_future(penstock("logs", "--follow", JOB))
    await fake.until(lambda: any(call.container == a.id for call in fake.called("attach")))
    host.end(manager, FAILED)
    fake.calls.clear()
    await fake.until(lambda: len(fake.called("status")) >= 6)
    host.write(a, b"two\n")
    host.end(a, DONE)
    assert await printing == (0, "--- a\none\ntwo\n", "")


async def test_a_task_that_outlives_its_manager_is_not_waited_for_for_ever(
    host: Host, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.job_logs._STOP_S", 0.01)
    host.end(await host.manager(), FAILED)
    await host.add("a", stdout=b"one\n")
    assert await penstock("logs", "--follow", JOB) == (0, "--- a\none\n", "")


async def test_a_job_is_followed_from_before_the_start_of_its_first_task(
    host: Host, fake: FakeAgent, penstock: Penstock
) -> None:
    host.see(state="waiting", tasks_running=0, tasks_waiting=1)
    assert await penstock("logs", JOB) == (4, "", f"penstock logs: {HERE_YET}\n")
    host.see(nodes=["beta", "gamma"])
    there = "its tasks run or ran on beta, gamma"  # of slots there is no output
    assert await penstock("logs", JOB) == (4, "", f"penstock logs: {HERE_YET}; {there}\n")
    host.see(state="waiting", tasks_running=0, tasks_waiting=1)
    fake.calls.clear()
    printing = asyncio.ensure_future(penstock("logs", "--follow", JOB))
    await fake.until(lambda: len(fake.called("jobs")) >= 3)
    a = await host.add("a", stdout=b"one\n")
    await fake.until(lambda: any(call.container == a.id for call in fake.called("attach")))
    host.end(a, DONE)
    host.see(state="ended", tasks_running=0, tasks_done=1)
    assert await printing == (0, "one\n", "")


@pytest.mark.parametrize(("of_task", "has_master"), [(False, True), (True, True), (True, False)])
async def test_another_users_container_cannot_take_the_place_of_the_jobs_manager(
    host: Host, fake: FakeAgent, penstock: Penstock, *, of_task: bool, has_master: bool
) -> None:
    host.see(user="eve")
    if not has_master:
        fake.refuse["jobs"] = unavailable("there is no master")
    host.end(await host.manager("tester", stdout=b"{}\n", stderr=b"of the caller\n"), DONE)
    host.end(await host.manager("eve", stdout=b'{"job": 1}\n', stderr=b"of eve\n"), DONE)
    host.end(await host.manager("mallory", stdout=b"{}\n", stderr=b"of mallory\n"), DONE)
    if of_task:
        host.end(await host.add("a", user="eve"), DONE)
    assert await penstock("logs", JOB) == (0, "", "of eve\n")
    assert await penstock("logs", "--json", JOB) == (0, '{"job": 1}\n', "")


async def test_a_name_alone_makes_no_manager(host: Host, fake: FakeAgent, penstock: Penstock) -> None:
    await host.manager("mallory", stdout=b"{}\n", stderr=b"of mallory\n")
    assert await penstock("logs", JOB) == (4, "", f"penstock logs: {HERE_YET}\n")
    fake.refuse["jobs"] = unavailable("there is no master")
    status, out, err = await penstock("logs", "--json", JOB)
    assert (status, out) == (4, ""), err


async def test_a_manager_that_the_agent_has_dropped_is_none(host: Host, fake: FakeAgent, penstock: Penstock) -> None:
    del fake.containers[(await host.manager()).id]
    host.end(await host.add("a", stdout=b"one\n"), DONE)
    assert await penstock("logs", JOB) == (0, "--- a\none\n", "")


async def test_another_users_job_is_refused(host: Host, fake: FakeAgent, penstock: Penstock) -> None:
    fake.views, fake.foreign = [], {JOB: "eve"}
    assert await penstock("logs", JOB) == (1, "", "penstock logs: job 'fake-1' belongs to eve\n")
    a = await host.add("a", user="eve", stdout=b"one\n")
    fake.refuse["attach"] = refused(f"container {a.id!r} belongs to eve", field="container")
    assert await penstock("logs", JOB) == (1, "", f"penstock logs: container {a.id!r} belongs to eve\n")


async def test_output_on_other_nodes_is_named(host: Host, fake: FakeAgent, penstock: Penstock) -> None:
    tasks = [{"task": "a", "node": "fake"}, {"task": "b", "node": "beta"}, {"task": "c", "node": None}]
    manager = await host.manager(stdout=json.dumps({"job": JOB, "tasks": tasks}).encode())
    host.end(manager, DONE)
    there = "penstock logs: other tasks of job 'fake-1' ran on beta: `penstock logs fake-1` there has more\n"
    assert await penstock("logs", JOB) == (0, "", there)


@pytest.mark.parametrize("state", ["running", "ended"])
async def test_a_job_that_was_not_detached_has_its_other_nodes_from_the_master(
    host: Host, penstock: Penstock, state: str
) -> None:
    host.end(await host.add("a", stdout=b"one\n"), DONE)
    host.see(state=state, tasks_running=0, tasks_done=1, ran_on=["beta", "fake"])
    there = "penstock logs: other tasks of job 'fake-1' ran on beta: `penstock logs fake-1` there has more\n"
    assert await penstock("logs", JOB) == (0, "one\n", there)


async def test_a_job_without_output_here_names_the_nodes_that_ran_its_tasks(host: Host, penstock: Penstock) -> None:
    kept = "this host keeps no output of job 'fake-1': none was written here, or it ended too long ago"
    host.see(state="ended", tasks_running=0, ran_on=["beta", "fake", "gamma"])
    there = "its tasks ran on beta, gamma, where their output is"
    assert await penstock("logs", JOB) == (4, "", f"penstock logs: {kept}; {there}\n")
    host.see(state="ended", tasks_running=0, ran_on=["alpha", "beta"], origin="alpha")
    elsewhere = "job 'fake-1' was submitted on alpha; ask there; its tasks ran on beta, where their output is"
    assert await penstock("logs", JOB) == (4, "", f"penstock logs: {elsewhere}\n")


async def test_nodes_without_commands_of_the_job_are_not_said_to_have_its_output(
    host: Host, penstock: Penstock
) -> None:
    host.see(tasks_running=1, nodes=["beta", "gamma", "slots"], ran_on=["beta", "gamma"])
    there = "its tasks run or ran on beta, gamma, where their output is"
    assert await penstock("logs", JOB) == (4, "", f"penstock logs: {HERE_YET}; {there}\n")
    await host.add("a", stdout=b"one\n")
    others = "penstock logs: other tasks of job 'fake-1' {}: `penstock logs fake-1` there {} more\n"
    assert await penstock("logs", JOB) == (0, "one\n", others.format("ran on beta, gamma", "has"))
    host.see(tasks_running=1, nodes=["slots"], ran_on=["fake"])
    assert await penstock("logs", JOB) == (0, "one\n", "")
    host.see(tasks_running=1, nodes=["fake", "slots"])
    assert await penstock("logs", JOB) == (0, "one\n", others.format("run on slots", "may have"))


async def test_a_list_of_nodes_that_the_master_cut_says_so(host: Host, penstock: Penstock) -> None:
    host.see(state="ended", tasks_running=0, ran_on=[f"n{n:03}" for n in range(MOST_NODES)])
    status, _, err = await penstock("logs", JOB)
    assert status == 4 and err.endswith("n098, n099 and perhaps more, where their output is\n")
    host.end(await host.add("a", stdout=b"one\n"), DONE)
    assert "n098, n099 and perhaps more: `penstock logs" in (await penstock("logs", JOB))[2]
    tasks = [{"task": f"t{n}", "node": f"n{n:03}"} for n in range(MOST_NODES)]
    host.end(await host.manager(stdout=json.dumps({"job": JOB, "tasks": tasks}).encode()), DONE)
    assert "n098, n099: `penstock logs" in (await penstock("logs", JOB))[2], "the results name all"


async def test_the_host_of_a_job_has_its_messages(host: Host, fake: FakeAgent, penstock: Penstock) -> None:
    fake.views = [JobView(job=JOB, name="w", user="tester", origin="alpha", state="running", submitted_at=1.0)]
    await host.add("a", stdout=b"one\n")
    where = "penstock logs: job 'fake-1' was submitted on alpha, where its messages are\n"
    assert await penstock("logs", JOB) == (0, "one\n", where)


async def test_the_results_of_a_detached_job(host: Host, penstock: Penstock) -> None:
    manager = await host.manager()
    status, out, err = await penstock("logs", "--json", JOB)
    assert (status, out) == (1, "")
    assert err == "penstock logs: job 'fake-1' has no results yet; --follow waits for its end\n"
    waiting = asyncio.ensure_future(penstock("logs", "--json", "--follow", JOB))
    host.write(manager, b'{"job": "fake-1"}\n')
    host.end(manager, DONE)
    assert await waiting == (0, '{"job": "fake-1"}\n', "")


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (
            ("--json", "c-1"),
            4,
            "--json: this host has no results of a detached job 'c-1'; `penstock jobs` lists your jobs",
        ),
        (("--json", "alpha-1"), 4, "--json: job 'alpha-1' was submitted on alpha; ask there"),
        (
            ("nothing",),
            4,
            "there is no container or job 'nothing', or it ended too long ago;"
            " `penstock status` lists the containers of this host, `penstock jobs` your jobs",
        ),
        (("--json", "--stderr", JOB), 2, "--json: prints the results of a job; leave out --stderr and --tail"),
        (
            ("old-1",),
            4,
            "this host keeps no output of job 'old-1': none was written here, or it ended too long ago",
        ),
    ],
)
async def test_what_has_no_output_is_one_line(
    host: Host, fake: FakeAgent, penstock: Penstock, argv: tuple[str, ...], status: int, said: str
) -> None:
    fake.views = [
        msgspec.structs.replace(VIEW, job="old-1", state="ended"),
        msgspec.structs.replace(VIEW, job="alpha-1", origin="alpha"),
    ]
    assert await penstock("logs", *argv) == (status, "", f"penstock logs: {said}\n")


async def test_a_name_that_no_master_was_asked_about_is_no_container(
    host: Host, fake: FakeAgent, penstock: Penstock
) -> None:
    fake.refuse["jobs"] = unavailable("the master is away")
    why = "there is no container 'nothing' on this host, and no master answers whether there is such a job"
    listed = "`penstock status` lists the containers of this host"
    assert await penstock("logs", "nothing") == (4, "", f"penstock logs: {why}; {listed}\n")
