"""Containers on a real agent: how they end, which users may touch them, and that they outlive an agent that is
killed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from agent.cgroup_root import choose_root
from penstock.client import AgentClient
from penstock.model import ContainerSpec
from penstock.transport import RpcPeer, connect_unix
from penstock.wire.errors import ErrorCode, RpcError
from tests.integration.conftest import has_ended

Connect = Callable[..., Awaitable[Any]]
Start = Callable[..., Any]


async def launch(client: Any, *argv: str, **fields: object) -> dict[str, Any]:
    answer = await client.call("launch", container={"argv": list(argv), **fields})
    assert isinstance(answer, dict)
    return answer


async def ended(client: Any, count: int = 1) -> dict[str, Any]:
    over = await client.recorder.wait_for("container_ended", count)
    assert isinstance(over[-1]["ended"], dict)
    return over[-1]["ended"]


def fifo(directory: Path, name: str = "fifo") -> Path:
    path = directory / name
    os.mkfifo(path)
    return path


class Pipe:
    """A FIFO's reading end. Its end of file comes only when every process that holds the other end is gone."""

    def __init__(self, path: Path) -> None:
        # Non-blocking for the open alone, so that no thread hangs in it when the writer dies too early.
        self._file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "r")

    async def readable(self) -> None:
        """Wait until there is something to read, or the last writer left."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._file, lambda: ready.done() or ready.set_result(None))
        try:
            await asyncio.wait_for(ready, 30)
        finally:
            loop.remove_reader(self._file)

    async def read(self) -> str:
        """Return the output so far."""
        await self.readable()
        return self._file.read()


@pytest.fixture(scope="module")
def agent(start_shared_agent: Start) -> Any:
    """One for all tests that harm it in nothing."""
    return start_shared_agent()


async def test_exit_status_and_output(agent: Any, connect: Connect) -> None:
    client = await connect(agent)
    started = await launch(client, "sh", "-c", "echo out; echo err >&2; exit 3")
    over = await ended(client)
    assert (over["by"], over["exit_status"]) == ("exit", 3)
    for stream, text in (("stdout", b"out\n"), ("stderr", b"err\n")):
        assert (await client.call("output", container=started["container"], stream=stream))["data"] == text


async def test_a_command_that_cannot_start_names_the_step_that_failed(start_agent: Start, connect: Connect) -> None:
    client = await connect(start_agent())
    for fields, text in (
        ({"argv": ["no-such-command"]}, "command not found: 'no-such-command'"),
        ({"argv": ["true"], "cwd": "/nowhere"}, "cannot enter directory '/nowhere': No such file or directory"),
        ({"argv": ["/etc/passwd"]}, "cannot run '/etc/passwd': Permission denied"),
        ({"argv": ["true"], "stdio": "0" * 32}, "no descriptors were passed"),
    ):
        with pytest.raises(RpcError, match=text.replace("(", r"\(")) as caught:
            await client.call("launch", container=fields)
        assert caught.value.code is ErrorCode.UNAVAILABLE
    assert not (await client.call("status"))["status"]["containers"][0]["pid"]


async def test_memory_that_is_promised_already_is_refused_with_the_numbers(
    start_agent: Start, connect: Connect
) -> None:
    client = await connect(start_agent(memory_bytes=1000 * 2**20))
    await launch(client, "sleep", "1000", memory_bytes=800 * 2**20)
    with pytest.raises(RpcError, match=r"300 MiB asked, 200 MiB of 1000 MiB not promised") as caught:
        await launch(client, "sleep", "1000", memory_bytes=300 * 2**20)
    assert caught.value.code is ErrorCode.REFUSED and caught.value.body.remedy


@pytest.mark.skipif(
    choose_root("x") is None, reason="elsewhere: without a cgroup, a process that leaves its session escapes"
)
async def test_kill_takes_the_whole_container_daemons_too(agent: Any, connect: Connect, tmp_path: Path) -> None:
    """The FIFO reaches its end only when every process that inherited it is gone."""
    client = await connect(agent)
    path = fifo(tmp_path)
    pipe = Pipe(path)
    script = f"exec 9>{path}; setsid sh -c 'sleep 1000 & echo up >&9; sleep 1000' & sleep 1000"
    started = await launch(client, "sh", "-c", script, detach=True)
    assert await pipe.read() == "up\n"
    await client.call("kill", container=started["container"])
    over = await ended(client)
    assert over["by"] == "cancelled" and over["reason"].startswith("cancelled by")
    assert await pipe.read() == ""


async def test_the_children_of_the_first_process_end_with_it(agent: Any, connect: Connect, tmp_path: Path) -> None:
    client = await connect(agent)
    path = fifo(tmp_path)
    pipe = Pipe(path)
    await launch(client, "sh", "-c", f"exec 9>{path}; echo up >&9; setsid sleep 1000 & exit 0")
    assert await pipe.read() == "up\n"
    assert (await ended(client))["exit_status"] == 0
    assert await pipe.read() == ""


async def test_an_attached_container_goes_with_its_client_a_detached_one_stays(agent: Any, connect: Connect) -> None:
    client, watcher = await connect(agent), await connect(agent)
    attached = await launch(client, "sleep", "1000")
    detached = await launch(client, "sleep", "1000", detach=True)
    for started in (attached, detached):
        await watcher.call("attach", container=started["container"])
    client.peer.close()
    (over,) = await watcher.recorder.wait_for("container_ended")
    assert over["container"] == attached["container"] and over["ended"]["by"] == "disconnected"
    states = {c["container"]: c["state"] for c in (await watcher.call("status"))["status"]["containers"]}
    assert states[detached["container"]] == "running"


async def test_signals_reach_the_command(agent: Any, connect: Connect) -> None:
    client = await connect(agent)
    started = await launch(client, "sleep", "1000")
    await client.call("signal", container=started["container"], signal=int(signal.SIGTERM))
    over = await ended(client)
    assert (over["by"], over["exit_status"], over["reason"]) == ("signal", 143, "signal 15")


@pytest.mark.parametrize("while_away", [False, True])
async def test_a_killed_agent_loses_no_container_and_no_exit_status(
    start_agent: Start, connect: Connect, tmp_path: Path, while_away: bool
) -> None:
    """SIGKILL, start again: the container runs on; its exit status arrives even if it ended in between."""
    agent = start_agent()
    client = await connect(agent)
    path = fifo(tmp_path)
    started = await launch(client, "sh", "-c", f"read line < {path}; exit 7")
    agent.kill()
    os.kill(started["pid"], 0)  # alive
    if while_away:
        path.write_text("go\n")
        assert await asyncio.to_thread(has_ended, started["pid"])
    again = await connect(start_agent())
    await again.call("attach", container=started["container"])
    if not while_away:
        (seen,) = (await again.call("status"))["status"]["containers"]
        assert (seen["state"], seen["pid"]) == ("running", started["pid"])
        await asyncio.to_thread(path.write_text, "go\n")
    over = await ended(again)
    assert (over["by"], over["exit_status"]) == ("exit", 7)


@pytest.mark.parametrize("clean", [True, False])
async def test_how_a_container_ended_and_its_output_outlive_agents(
    start_agent: Start, connect: Connect, clean: bool
) -> None:
    """Two agents come and go before the owner asks."""
    agent = start_agent()
    first = await connect(agent)
    started = await launch(first, "sh", "-c", "echo result; exit 3", detach=True, env={"SECRET": "x"})
    before = await ended(first)
    for _ in range(2):
        agent.stop() if clean else agent.kill()
        agent = start_agent()
    client = await connect(agent)
    await client.call("attach", container=started["container"])
    assert await ended(client) == before and before["exit_status"] == 3
    output = await client.call("output", container=started["container"], stream="stdout")
    assert output["data"] == b"result\n"


async def test_a_killed_agent_frees_the_slots_of_clients_that_went_away(start_agent: Start, connect: Connect) -> None:
    agent = start_agent(cores=1)
    client = await connect(agent)
    job = (await client.call("register_job", name="j"))["job"]
    await client.call("submit", job=job, monotasks=[{"id": 1, "kind": "cpu", "input_bytes": 1}])
    agent.kill()
    again = start_agent(cores=1)
    status = await asyncio.to_thread(again.status)
    assert status["kinds"]["cpu"]["running"] == 0
    back = await connect(again)
    rejoined = await back.call("register_job", name="j", job=job)
    assert rejoined["job"] == job
    await back.call("submit", job=job, monotasks=[{"id": 1, "kind": "cpu", "input_bytes": 1, "running": True}])
    await back.call("submit", job=job, monotasks=[{"id": 2, "kind": "cpu", "input_bytes": 1}])
    cpu = (await back.call("status"))["status"]["kinds"]["cpu"]
    assert (cpu["running"], cpu["queued"]) == (1, 1)
    await back.call("complete", job=job, monotasks=[{"id": 1}])
    [grant] = await back.recorder.wait_for("grant")
    assert (grant["job"], grant["ids"]) == (job, [2])


class Silent:
    """A handler that expects nothing."""

    def connected(self, peer: RpcPeer) -> None: ...
    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object: ...
    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None: ...
    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None: ...
    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None: ...


def _as_nobody(socket: Path, answer: Connection) -> None:
    """In a child: become the user `nobody`, connect to root's agent, report the result."""
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)

    async def speak() -> tuple[int | None, list[str], list[str]]:
        agent = await AgentClient.connect(socket, client="nobody")
        spec = ContainerSpec(argv=("sh", "-c", "id -un; id -G; grep NoNewPrivs /proc/self/status"))
        container = await agent.launch(spec)
        status = (await container.wait()).exit_status
        output = (await container.output("stdout")).decode().split()
        refusals = []
        everybodys = (await agent.status())["containers"]
        (roots,) = [c["container"] for c in everybodys if c["user"] == "root"]
        peer = await connect_unix(str(socket), Silent())
        await peer.request("hello", {"protocol": 1}, dict)
        for method in ("kill", "attach", "output"):
            try:
                await peer.request(method, {"container": roots}, dict)
            except RpcError as error:
                refusals.append(f"{method} {error.code} {error.body.message}".replace(roots, "X"))
        peer.close()
        await agent.close()
        return status, output, refusals

    answer.send(asyncio.run(speak()))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
async def test_another_user_s_container_runs_as_that_user_and_has_no_other_rights(
    start_agent: Start, connect: Connect
) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as runtime:  # pytest's own directories are private
        Path(runtime).chmod(0o755)
        await _two_users(start_agent(runtime_dir=Path(runtime) / "run"), connect)


async def _two_users(agent: Any, connect: Connect) -> None:
    await launch(await connect(agent), "sleep", "1000", detach=True)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_as_nobody, args=(agent.socket, theirs))
    child.start()
    assert await asyncio.to_thread(ours.poll, 60), "no answer from the child"
    status, output, refusals = ours.recv()
    child.join(30)
    assert (status, output) == (0, ["nobody", "65534", "NoNewPrivs:", "1"])
    assert refusals == [f"{m} refused container 'X' belongs to root" for m in ("kill", "attach", "output")]


async def test_an_agent_that_stops_leaves_nothing_of_its_attached_containers(
    start_agent: Start, connect: Connect
) -> None:
    """Stopped while a client is attached: the container ends with the connection, and the launcher with the agent."""
    agent = start_agent()
    client = await connect(agent)
    started = await launch(client, "sleep", "1000")
    launcher = int(Path(f"/proc/{started['pid']}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert await asyncio.to_thread(agent.stop) == 0
    assert await asyncio.to_thread(has_ended, launcher)
    assert await asyncio.to_thread(has_ended, started["pid"])


async def test_an_attached_container_goes_on_where_another_program_started_the_launcher(
    start_agent: Start, connect: Connect
) -> None:
    """As under systemd, where a restart of the agent's unit ends nothing."""
    start_agent().kill()  # its launcher stays
    agent = start_agent(spawn_launcher=False)
    started = await launch(await connect(agent), "sleep", "1000")
    assert await asyncio.to_thread(agent.stop) == 0
    again = await connect(start_agent(spawn_launcher=False))
    await again.call("attach", container=started["container"])
    (seen,) = (await again.call("status"))["status"]["containers"]
    assert (seen["state"], seen["pid"]) == ("running", started["pid"])
    await again.call("kill", container=started["container"])
    assert (await ended(again))["by"] == "cancelled"
