"""``penstock submit --detach``: the job is held until its manager, a container of the agent, has joined it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.cli.plain_text import printable
from penstock.cli.report import accepted
from penstock.model.container import Ended, EndedBy
from penstock.wire.errors import refused
from tests.fakes.agent import FakeAgent, FakeContainer
from tests.fakes.agent_thread import AgentThread

NAME = "a\x1b[31mb\nc"


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.toml"
    path.write_text('name = "big"\n[[task]]\nname = "a"\ncommand = "true"\n')
    return str(path)


def joins(agent: FakeAgent) -> None:
    """Let the manager write, as soon as it is launched, that it has joined the job."""

    def write(made: FakeContainer) -> None:
        (job,) = agent.known_jobs
        agent.outputs["stderr"] = f"penstock submit: {accepted('big', job)}\n".encode()

    agent.on_launch = write


def test_it_returns_when_the_manager_has_joined_the_job(
    agent: AgentThread, job_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    joins(agent.agent)
    assert main(["submit", "--detach", "--json", "--quiet", job_file]) == 0
    (job,) = agent.agent.known_jobs
    (container,) = agent.agent.containers
    assert json.loads(capsys.readouterr().out) == {"job": job, "container": container}
    (launched,) = agent.agent.called("launch")
    manager = launched.container
    assert manager.argv[-6:] == ("submit", "--manages", job, "--quiet", job_file, "--json")
    assert (manager.name, manager.detach, manager.stdio) == (f"submit {job}", True, "")
    assert manager.env["PENSTOCK_SOCKET"] == str(agent.socket)
    assert not agent.agent.called("end_job"), "the manager has it"


def test_a_job_may_have_a_name_with_control_characters(
    agent: AgentThread, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(made: FakeContainer) -> None:
        (job,) = agent.agent.known_jobs
        agent.agent.outputs["stderr"] = f"penstock submit: {printable(accepted(NAME, job))}\n".encode()
        agent.agent.end_container(made, Ended(by=EndedBy.EXIT, exit_status=0))

    path = tmp_path / "job.toml"
    path.write_text(f'name = {json.dumps(NAME)}\n[[task]]\nname = "a"\ncommand = "true"\n')
    agent.agent.on_launch = write
    assert main(["submit", "--detach", str(path)]) == 0
    (job,) = agent.agent.known_jobs
    assert capsys.readouterr().out == f"{job}\n"


def test_a_manager_that_ends_before_is_an_error_with_its_last_line(
    agent: AgentThread, job_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(made: FakeContainer) -> None:
        agent.agent.outputs["stderr"] = b"a warning\npenstock submit: no room\n"
        agent.agent.end_container(made, Ended(by=EndedBy.EXIT, exit_status=1))

    agent.agent.on_launch = end
    assert main(["submit", "--detach", job_file]) == 1
    assert capsys.readouterr().err == "penstock submit: the job's manager ended at once: no room\n"


def test_a_manager_that_cannot_be_started_is_an_error(
    agent: AgentThread, job_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.agent.refuse["launch"] = refused("no more containers")
    assert main(["submit", "--detach", job_file]) == 1
    assert capsys.readouterr().err == "penstock submit: no more containers\n"


@pytest.mark.parametrize("is_known", [True, False])
def test_after_a_restart_of_the_agent_the_job_is_joined_and_the_manager_waited_for(
    agent: AgentThread, job_file: str, capsys: pytest.CaptureFixture[str], is_known: bool
) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(main, ["submit", "--detach", job_file])
        agent.until(lambda fake: bool(fake.called("output")))
        (job,) = agent.agent.known_jobs
        containers = dict(agent.agent.containers)
        agent.stop()
        if is_known:
            agent.agent.containers = containers
        agent.start()
        agent.until(lambda fake: bool(fake.called("attach")))
        assert [each.job for each in agent.agent.called("register_job")][:1] == [job]
        if is_known:
            agent.do(lambda fake: fake.outputs.update(stderr=accepted("big", job).encode()))
        assert running.result(60) == (0 if is_known else 1)
    if not is_known:
        assert "ended at once: the agent was restarted and does not know it" in capsys.readouterr().err


def test_it_needs_no_event_loop(agent: AgentThread, job_file: str) -> None:
    joins(agent.agent)
    code = "import sys; from penstock.cli.main import main; print(main(sys.argv[1:]), *sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, "submit", "--detach", job_file],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PENSTOCK_SOCKET": str(agent.socket)},
        timeout=60,
    )
    status, *modules = done.stderr.splitlines()[-1].split()
    assert status == "0"
    assert not {"asyncio", "logging", "json", "rich", "penstock.client.agent", "penstock.wire.agent_api"} & set(modules)
