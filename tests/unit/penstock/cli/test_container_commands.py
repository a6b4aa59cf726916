"""adopt, resize and follow against an agent that the test steers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.model.container import ContainerSpec, Ended, EndedBy, Limits
from penstock.model.profile import Profile
from penstock.transport.peer import connect_unix
from penstock.wire.agent_api import Launch, Launched, Welcome
from penstock.wire.errors import refused
from tests.fakes.agent import FakeAgent, FakeContainer
from tests.unit.penstock.cli.conftest import Penstock


@pytest.fixture
async def container(fake: FakeAgent) -> AsyncIterator[FakeContainer]:
    """One that runs, with a limit."""
    peer = await connect_unix(str(fake.socket), fake)
    await peer.request("hello", {"protocol": 1}, Welcome)
    spec = ContainerSpec(argv=("x",), limits=Limits(cpu_cores=1.0), detach=True)
    launched = await peer.request("launch", Launch(container=spec), Launched)
    yield fake.containers[launched.container]
    peer.close()


async def test_adopt_passes_its_options_to_the_agent(fake: FakeAgent, penstock: Penstock) -> None:
    pid = os.getpid()
    argv = ["adopt", "--memory", "64M", "--opportunistic", "--name", "me", "--tree", str(pid)]
    assert await penstock(*argv) == (0, "c-1\n", "")
    [call] = fake.called("adopt")
    assert (call.pid, call.tree) == (pid, True)
    spec = call.container
    assert spec.argv == tuple(map(os.fsdecode, Path("/proc/self/cmdline").read_bytes()[:-1].split(b"\0")))
    assert (spec.limits, spec.name, spec.opportunistic) == (Limits(memory_max_bytes=64 << 20), "me", True)
    assert spec.detach, "it was not ours to end before, either"
    assert (spec.env, spec.stdio) == ({}, "")


async def test_adopt_gives_the_reason_for_a_refusal(fake: FakeAgent, penstock: Penstock) -> None:
    fake.refuse["adopt"] = refused("process 1 does not belong to eve alone")
    assert await penstock("adopt", "1") == (1, "", "penstock adopt: process 1 does not belong to eve alone\n")


async def test_adopt_warns_of_limits_that_are_not_enforced(fake: FakeAgent, penstock: Penstock) -> None:
    fake.not_enforced = {"cpu_cores": "no cpu"}
    assert await penstock("adopt", str(os.getpid()), "--cpu", "1") == (
        0, "c-1\n", "penstock adopt: --cpu is not enforced: no cpu\n",
    )  # fmt: skip


async def test_resize_changes_the_named_limits(fake: FakeAgent, container: FakeContainer, penstock: Penstock) -> None:
    assert await penstock("resize", container.id, "--pids", "10", "--net-in", "1M") == (0, "", "")
    assert container.limits == Limits(cpu_cores=1.0, pids_max=10, network_ingress_bytes_per_s=1 << 20)
    assert await penstock("resize", "--cpu", "none", "--pids", "20", container.id) == (0, "", "")
    assert container.limits == Limits(pids_max=20, network_ingress_bytes_per_s=1 << 20)


async def test_resize_warns_of_limits_that_are_not_enforced(
    fake: FakeAgent, container: FakeContainer, penstock: Penstock
) -> None:
    fake.not_enforced = {"pids_max": "no pids"}
    status, out, err = await penstock("resize", container.id, "--pids", "10")
    assert (status, out, err) == (0, "", "penstock resize: --pids is not enforced: no pids\n")


async def test_follow_sends_a_profile_and_takes_it_back(
    container: FakeContainer, penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"slot_s": 1, "cpu_cores": [0.5, 2], "memory_bytes": [1 << 20]}))
    assert await penstock("follow", container.id, str(path)) == (0, "", "")
    assert container.profile == Profile(slot_s=1.0, cpu_cores=(0.5, 2.0), memory_bytes=(1 << 20,))
    assert await penstock("follow", container.id, "none") == (0, "", "")
    assert container.profile is None


async def test_kill_tells_of_a_container_that_does_not_end_and_waits_for_it(
    fake: FakeAgent, container: FakeContainer, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Queue[str]()
    monkeypatch.setattr("penstock.cli.kill._TOLD_AFTER_S", 0.0)
    monkeypatch.setattr("penstock.cli.kill.note", lambda _, text: loop.call_soon_threadsafe(told.put_nowait, text))
    fake.killed_together = 2
    killing = asyncio.ensure_future(penstock("kill", container.id))
    assert (await asyncio.wait_for(told.get(), 60)).startswith(f"{container.id} has not ended yet: ")
    assert container.killed and not killing.done()
    fake.end_container(container, Ended(by=EndedBy.CANCELLED, exit_status=137))
    assert await killing == (0, "", "")


async def test_logs_prints_the_output_of_a_container(
    fake: FakeAgent, container: FakeContainer, penstock: Penstock
) -> None:
    fake.outputs = {"stdout": b"one\ntwo\n", "stderr": b"oh\n"}
    assert await penstock("logs", container.id) == (0, "one\ntwo\n", "")
    assert await penstock("logs", "--stderr", container.id) == (0, "oh\n", "")


async def test_logs_prints_the_last_lines_and_then_all_that_follow(
    fake: FakeAgent, container: FakeContainer, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.logs._LOOK_S", 0.01)
    fake.outputs["stdout"] = b"one\ntwo\nthree\n"
    assert await penstock("logs", "--tail", "2", container.id) == (0, "two\nthree\n", "")
    assert await penstock("logs", "-n", "0", container.id) == (0, "", "")
    printing = asyncio.ensure_future(penstock("logs", "-f", "-n", "1", container.id))
    asked = len(fake.called("output"))
    await fake.until(lambda: len(fake.called("output")) > asked + 5)  # four parts of the output, and later ones
    fake.outputs["stdout"] += b"four\nfive\n"
    fake.end_container(container, Ended(by=EndedBy.EXIT, exit_status=0))
    assert await printing == (0, "three\nfour\nfive\n", "")
    assert await penstock("logs", "-n", "some", container.id) == (
        2, "", "penstock logs: -n/--tail: 'some' is not a number of lines; write for example 20\n",
    )  # fmt: skip


async def test_logs_goes_on_until_the_container_has_ended(
    fake: FakeAgent, container: FakeContainer, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.logs._LOOK_S", 0.01)
    fake.outputs["stdout"] = b"one\n"
    printing = asyncio.ensure_future(penstock("logs", "-f", container.id))
    while len(fake.called("output")) < 3:  # noqa: ASYNC110 - the first answer was complete, and it asks again
        await asyncio.sleep(0.005)
    assert not printing.done()
    fake.outputs["stdout"] += b"two\n"
    fake.end_container(container, Ended(by=EndedBy.EXIT, exit_status=3))
    assert await printing == (0, "one\ntwo\n", "")


async def test_logs_ends_when_its_reader_has_gone_although_nothing_is_written(
    fake: FakeAgent, container: FakeContainer
) -> None:
    fake.outputs["stdout"] = b"ready\n"
    reader, writer = os.pipe()
    argv = [sys.executable, "-m", "penstock.cli.main", "logs", "-f", container.id]
    command = await asyncio.create_subprocess_exec(*argv, stdout=writer, stderr=asyncio.subprocess.PIPE)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as output:
            assert await asyncio.to_thread(output.readline) == b"ready\n"  # as grep -m1 ready
        assert await asyncio.wait_for(command.communicate(), 60) == (None, b"")
        assert command.returncode == 1
    finally:
        if command.returncode is None:
            command.kill()
            await command.wait()


async def test_logs_reports_output_that_is_not_kept_any_more(
    fake: FakeAgent, container: FakeContainer, penstock: Penstock
) -> None:
    fake.outputs["stdout"], fake.dropped_bytes = b"a line that is gone\nthe last\n", 20
    assert await penstock("logs", container.id) == (
        0, "the last\n", "penstock logs: 20 bytes no longer kept\n",
    )  # fmt: skip
