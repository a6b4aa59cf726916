"""The command as a process, against an agent that the test steers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.model.container import Ended, EndedBy
from tests import warm_commands
from tests.fakes.agent import FakeAgent, FakeContainer

COMMAND = (warm_commands.penstock(),)
Start = Callable[..., Coroutine[Any, Any, Process]]


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeAgent]:
    agent = FakeAgent(tmp_path)
    await agent.start()
    yield agent
    await agent.stop()


@pytest.fixture
async def penstock(fake: FakeAgent) -> AsyncIterator[Start]:
    started: list[Process] = []

    async def start(*argv: str, stdin: int = DEVNULL) -> Process:
        environment = {**os.environ, "PENSTOCK_SOCKET": str(fake.socket), "MARK": "of the caller"}
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *argv, env=environment, stdin=stdin, stdout=PIPE, stderr=PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def result_of(process: Process) -> tuple[int, str, str]:
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def launched(fake: FakeAgent, number: int = 1) -> FakeContainer:
    async with asyncio.timeout(30):
        await fake.until(lambda: len(fake.containers) >= number)
    return list(fake.containers.values())[-1]


def ends(how: Ended, output: bytes = b"") -> Callable[[FakeAgent], None]:
    def prepare(fake: FakeAgent) -> None:
        def on_launch(made: FakeContainer) -> None:
            if made.stdio:
                os.write(made.stdio[1], output)
            fake.end_container(made, how)

        fake.on_launch = on_launch

    return prepare


# ---------------------------------------------------------------- run


async def test_run_passes_its_options_to_the_agent(fake: FakeAgent, penstock: Start, tmp_path: Path) -> None:
    ends(Ended(by=EndedBy.EXIT, exit_status=0), b"hello\n")(fake)
    argv = ["--cpu", "0.5", "--memory", "64M", "--disk", "10MB/s", "--net", "8Mbit/s", "--opportunistic"]
    more = ["--name", "n", "--env", "A=b=c", "--cwd", str(tmp_path), "--", "cat", "--", "-x"]
    assert await result_of(await penstock("run", *argv, *more)) == (0, "hello\n", "")
    [call] = fake.called("launch")
    spec = call.container
    assert spec.argv == ("cat", "--", "-x")
    assert (spec.limits.cpu_cores, spec.cpu_cores) == (0.5, 0.5)
    assert (spec.limits.memory_max_bytes, spec.limits.memory_high_bytes, spec.memory_bytes) == (
        64 << 20,
        None,
        64 << 20,
    )
    assert (spec.limits.disk_read_bytes_per_s, spec.limits.disk_write_bytes_per_s) == (10**7, 10**7)
    assert spec.limits.network_egress_bytes_per_s == 10**6
    assert (spec.opportunistic, spec.name, spec.cwd, spec.detach) == (True, "n", str(tmp_path), False)
    assert (spec.env["A"], spec.env["MARK"]) == ("b=c", "of the caller")


async def test_run_without_dashes_and_with_throttling(fake: FakeAgent, penstock: Start) -> None:
    ends(Ended(by=EndedBy.EXIT, exit_status=0))(fake)
    argv = ["--memory", "1M", "--memory-policy", "throttle", "sh", "-c", "x", "--", "--cpu"]
    assert (await result_of(await penstock("run", *argv)))[0] == 0
    spec = fake.called("launch")[0].container
    assert spec.argv == ("sh", "-c", "x", "--", "--cpu")
    assert (spec.limits.memory_max_bytes, spec.limits.memory_high_bytes) == (None, 1 << 20)
    assert spec.cwd == str(Path.cwd())


@pytest.mark.parametrize(
    ("ended", "status", "message"),
    [
        (Ended(by=EndedBy.EXIT, exit_status=7), 7, ""),
        (Ended(by=EndedBy.SIGNAL, exit_status=143), 143, ""),
        (Ended(by=EndedBy.OOM, exit_status=137, reason="memory.max is 64 MiB"), 137, "out of memory: memory.max is 64"),
        (Ended(by=EndedBy.PREEMPTED, exit_status=137, reason="memory wanted"), 137, "preempted: memory wanted"),
        (Ended(by=EndedBy.CANCELLED, exit_status=137, reason="eve asked"), 137, "cancelled: eve asked"),
        (Ended(by=EndedBy.FAILED, reason="no such file"), 1, "could not be started: no such file"),
        (Ended(by=EndedBy.LOST), 1, "its end was not observed"),
    ],
)
async def test_run_ends_as_its_command_ended(
    fake: FakeAgent, penstock: Start, ended: Ended, status: int, message: str
) -> None:
    ends(ended)(fake)
    returned, _, err = await result_of(await penstock("run", "x"))
    assert returned == status
    assert err.count("\n") == bool(message)
    assert message in err


async def test_run_warns_of_each_option_that_is_not_enforced(fake: FakeAgent, penstock: Start) -> None:
    ends(Ended(by=EndedBy.EXIT, exit_status=0))(fake)
    fake.not_enforced = dict.fromkeys(["disk_read_bytes_per_s", "disk_write_bytes_per_s"], "no io; boot with v2")
    _, _, err = await result_of(await penstock("run", "--disk", "1M", "x"))
    assert err == "penstock run: --disk is not enforced: no io; boot with v2\n"


async def test_run_survives_a_restart_of_the_agent(fake: FakeAgent, penstock: Start) -> None:
    process = await penstock("run", "x")
    container = await launched(fake)
    await fake.stop()
    assert process.stderr is not None
    away = await asyncio.wait_for(process.stderr.readline(), 30)
    assert away.startswith(b"penstock run: the agent went away: the command goes on"), away
    await fake.start()
    async with asyncio.timeout(30):
        await fake.until(lambda: bool(fake.called("attach")))
    fake.end_container(container, Ended(by=EndedBy.EXIT, exit_status=5))
    assert (await result_of(process))[0] == 5


async def test_run_detached_prints_the_container_and_passes_no_streams(fake: FakeAgent, penstock: Start) -> None:
    status, out, _ = await result_of(await penstock("run", "--detach", "x"))
    assert (status, out.strip() in fake.containers) == (0, True)
    spec = fake.called("launch")[0].container
    assert (spec.detach, spec.stdio) == (True, "")


# ---------------------------------------------------------------- status, top


async def test_status_as_json_and_as_tables(fake: FakeAgent, penstock: Start) -> None:
    fake.document = {"node": "alpha", "jobs": [{"job": "j-1", "name": "count"}]}
    status, out, _ = await result_of(await penstock("status", "--json"))
    assert (status, json.loads(out)) == (0, fake.document)
    for argv in (["status"], ["top", "--once"], ["top"]):
        status, out, _ = await result_of(await penstock(*argv))
        assert (status, "alpha" in out, "count" in out) == (0, True, True)


async def test_a_reader_that_has_enough_is_no_error(fake: FakeAgent, penstock: Start) -> None:
    fake.document = {"jobs": [{"job": f"j-{n}", "name": "x" * 100} for n in range(5000)]}
    process = await penstock("status", "--json")
    assert process.stdout is not None
    await process.stdout.read(1)
    process.stdout._transport.close()  # type: ignore[attr-defined]
    assert process.stderr is not None
    err = await asyncio.wait_for(process.stderr.read(), 30)
    assert (await process.wait(), err) == (1, b"")


# ---------------------------------------------------------------- submit

JOB = """
name = "dag"
[[task]]
name = "a"
command = "true"
[[task]]
name = "b"
command = "true"
after = ["a"]
[[task]]
name = "c"
command = "true"
"""


async def submit(fake: FakeAgent, penstock: Start, tmp_path: Path, *argv: str, text: str = JOB) -> Process:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return await penstock("submit", str(path), *argv)


async def placed(fake: FakeAgent, *names: str) -> str:
    """Wait until all of these wait for their end; the job's id."""
    async with asyncio.timeout(30):
        await fake.until(lambda: {task for _, task in fake.placed} == set(names))
    return next(job for job, _ in fake.placed)


OK = Ended(by=EndedBy.EXIT, exit_status=0, wall_seconds=1.5)


async def test_submit_runs_the_graph(fake: FakeAgent, penstock: Start, tmp_path: Path) -> None:
    process = await submit(fake, penstock, tmp_path, "--json")
    job = await placed(fake, "a", "c")
    fake.end_task(job, "c", OK)  # their news may come in either order, but b follows a
    fake.end_task(job, "a", OK)
    fake.end_task(await placed(fake, "b"), "b", OK)
    status, out, err = await result_of(process)
    document = json.loads(out)
    assert (status, document["succeeded"], document["job"]) == (0, True, job)
    assert [(task["task"], task["state"], task["node"]) for task in document["tasks"]] == [
        ("a", "done", "fake"),
        ("b", "done", "fake"),
        ("c", "done", "fake"),
    ]
    first, *said = err.splitlines()
    assert first == f"penstock submit: dag is job {job}"
    assert {line.rsplit(" (", 1)[0] for line in said[:2]} == {
        "penstock submit: a done on fake in 1.5s",
        "penstock submit: c done on fake in 1.5s",
    }
    assert said[2:] == ["penstock submit: b done on fake in 1.5s (3 of 3)"]
    assert [call.job for call in fake.called("end_job")] == [job]
    told = [call.stages for call in fake.called("progress")]
    assert [(one.stage, one.tasks, one.done, one.after) for one in told[0]][1] == ("b", 1, 0, ["a"]), "not ready yet"
    assert [one.done for one in told[-1]] == [1, 1, 1]


async def test_submit_skips_the_dependents_of_a_failure_and_shows_its_output(
    fake: FakeAgent, penstock: Start, tmp_path: Path
) -> None:
    fake.outputs["stderr"] = b"line\n" * 20 + b"no space left\n"
    process = await submit(fake, penstock, tmp_path)
    job = await placed(fake, "a", "c")
    fake.document = {"containers": [{"container": "c-a", "job": job, "task": "a"}]}
    fake.containers["c-a"] = FakeContainer("c-a", fake.called("place")[0].tasks[0].command, fake.placed[job, "a"])
    fake.end_task(job, "a", Ended(by=EndedBy.EXIT, exit_status=3, reason="exit status 3"))
    fake.end_task(job, "c", OK)
    status, out, err = await result_of(process)
    assert status == 1
    rows = [line.split() for line in out.splitlines()]
    assert ["a", "a", "fake", "0.00", "3", "failed", "exit", "status", "3"] in rows
    assert ["b", "b", "skipped", "a", "did", "not", "succeed"] in rows
    assert "no space left" in err
    assert err.count("\nline") == 9


async def test_submit_fail_fast_cancels_the_rest(fake: FakeAgent, penstock: Start, tmp_path: Path) -> None:
    process = await submit(fake, penstock, tmp_path, "--json", text="fail_fast = true\n" + JOB)
    job = await placed(fake, "a", "c")
    fake.end_task(job, "a", Ended(by=EndedBy.EXIT, exit_status=3))
    status, out, _ = await result_of(process)
    states = {task["task"]: task["state"] for task in json.loads(out)["tasks"]}
    assert (status, states) == (1, {"a": "failed", "b": "skipped", "c": "cancelled"})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_submit_cancels_cleanly(fake: FakeAgent, penstock: Start, tmp_path: Path, number: int) -> None:
    process = await submit(fake, penstock, tmp_path, "--json")
    job = await placed(fake, "a", "c")
    process.send_signal(number)
    status, out, err = await result_of(process)
    assert status == 128 + number
    assert {task["state"] for task in json.loads(out)["tasks"]} == {"cancelled", "skipped"}
    assert [sorted(call.tasks) for call in fake.called("cancel_tasks")] == [["a", "c"]]
    assert [call.job for call in fake.called("end_job")] == [job]
    assert "Traceback" not in err


async def test_submit_that_waits_for_its_admission_can_be_cancelled(
    fake: FakeAgent, penstock: Start, tmp_path: Path
) -> None:
    fake.admits = False
    process = await submit(fake, penstock, tmp_path)
    assert process.stderr is not None
    assert await asyncio.wait_for(process.stderr.readline(), 30) == b"penstock submit: dag is job job-1\n"
    line = await asyncio.wait_for(process.stderr.readline(), 30)
    assert b"waiting until the cluster has memory" in line
    process.send_signal(signal.SIGINT)
    status, _, err = await result_of(process)
    assert status == 130
    assert "Traceback" not in err
    assert not fake.called("place")


async def test_submit_reports_that_it_waits_for_an_agent_that_went_away(
    fake: FakeAgent, penstock: Start, tmp_path: Path
) -> None:
    process = await submit(fake, penstock, tmp_path, "--json", "--quiet")
    job = await placed(fake, "a", "c")
    await fake.stop()
    assert process.stderr is not None
    away = await asyncio.wait_for(process.stderr.readline(), 30)
    assert away.startswith(b"penstock submit: the agent went away: the job goes on"), away
    await fake.start()
    back = await asyncio.wait_for(process.stderr.readline(), 30)
    assert back == b"penstock submit: the agent is back\n"
    fake.cancel_job(job, "ann")
    assert (await result_of(process))[0] == 1


async def test_submit_names_the_user_who_cancelled_its_job(fake: FakeAgent, penstock: Start, tmp_path: Path) -> None:
    process = await submit(fake, penstock, tmp_path, "--json", "--quiet")
    job = await placed(fake, "a", "c")
    fake.cancel_job(job, "ann")
    status, out, err = await result_of(process)
    assert (status, err) == (1, "penstock submit: cancelled by ann\n")
    tasks = {task["task"]: (task["state"], task["reason"]) for task in json.loads(out)["tasks"]}
    said = "cancelled by ann"
    assert tasks == {"a": ("cancelled", said), "b": ("skipped", said), "c": ("cancelled", said)}


async def test_submit_detaches_once_the_job_has_its_manager(fake: FakeAgent, penstock: Start, tmp_path: Path) -> None:
    fake.outputs["stderr"] = b"penstock submit: dag is job job-1\n"
    status, out, err = await result_of(await submit(fake, penstock, tmp_path, "--detach", "--reservation", "r-1"))
    assert (status, out) == (0, "job-1\n")
    assert err == "penstock submit: see `penstock jobs job-1` and `penstock logs job-1`\n"
    [manager] = fake.containers.values()
    at = manager.spec.argv.index("submit")
    path = str(tmp_path / "job.toml")
    assert manager.spec.argv[at:] == ("submit", "--manages", "job-1", path, "--reservation", "r-1", "--json")
    assert (manager.spec.name, manager.spec.detach, manager.spec.memory_bytes) == ("submit job-1", True, 0)
    assert manager.spec.env["PENSTOCK_SOCKET"] == str(fake.socket)
    assert "MARK" not in manager.spec.env


async def test_a_manager_that_cannot_begin_is_an_error_in_one_line(
    fake: FakeAgent, penstock: Start, tmp_path: Path
) -> None:
    fake.outputs["stderr"] = b"penstock submit: job.toml: No such file or directory\n"
    ends(Ended(by=EndedBy.EXIT, exit_status=2))(fake)
    status, out, err = await result_of(await submit(fake, penstock, tmp_path, "--detach"))
    assert (status, out) == (1, "")
    assert err == "penstock submit: the job's manager ended at once: job.toml: No such file or directory\n"


async def test_a_refused_placement_fails_the_task(fake: FakeAgent, penstock: Start, tmp_path: Path) -> None:
    from penstock.wire.errors import refused

    fake.refuse["place"] = refused("no such luck")
    status, out, _ = await result_of(await submit(fake, penstock, tmp_path))
    assert status == 1
    assert "no such luck" in out


# ---------------------------------------------------------------- start-up


def test_help_takes_little_more_than_the_interpreter() -> None:
    """The bar is 0.3 s as a whole process; here, as a ratio to the bare interpreter (9 ms), run by run in turn."""

    def once(*argv: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-I", *argv], check=True, capture_output=True)
        return time.perf_counter() - start

    pairs = [(once("-m", "penstock.cli.main", "--help"), once("-S", "-c", "pass")) for _ in range(9)]
    assert min(ours for ours, _ in pairs) < 25 * min(bare for _, bare in pairs)


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from penstock.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    unwanted = {"asyncio", "rich", "msgspec", "msgpack", "aiohttp", "argparse", "importlib.metadata", "re"}
    assert not unwanted & set(done.stderr.split())
