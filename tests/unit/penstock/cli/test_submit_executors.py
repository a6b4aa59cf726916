"""`penstock submit --executors` and executors in job files: the requests to the agent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import arguments
from penstock.cli.errors import CommandError
from penstock.cli.executors import add_options, of_executors
from penstock.cli.jobfile import of_file
from penstock.cli.limits import add_strict
from penstock.cli.submission import Submission
from penstock.cli.work import Work
from penstock.client.signals import Signals
from penstock.model.container import Ended, EndedBy
from penstock.model.executor import Executor, Sizing
from penstock.wire.agent_api import TaskStuck
from tests.fakes.agent_thread import AgentThread
from tests.unit.penstock.cli.conftest import Fails

OK = Ended(by=EndedBy.EXIT, exit_status=0, wall_seconds=1.5)


def executors(*argv: str, command: tuple[str, ...] = ("./sort", "--all")) -> Work:
    parser = arguments.Parser("submit", "")
    parser.add_argument("job", nargs="?")
    parser.add_argument("--opportunistic", default=None)
    add_options(parser)
    add_strict(parser)
    return of_executors(parser.parse_args([*argv]), command)


def test_executors_are_one_stage_of_alike_commands() -> None:
    work = executors(
        "--executors", "3", "--application", "sort", "--memory", "1G", "--cpu", "2", "--input-bytes", "9GiB",
        "--run", "monday", "--sizing", "shared", "--jvm", "--env", "A=b", "--node", "n1",
        "--node", "n2", "--node", "n1",
    )  # fmt: skip
    assert (work.name, [node.stage for node in work.graph.tasks.values()]) == ("sort", ["executors"] * 3)
    request = work.requests["executor-1"]
    assert request.executor == Executor(
        application="sort", input_bytes=9 << 30, run="monday", sizing=Sizing.SHARED, jvm=True
    )
    assert (request.nodes, request.memory_bytes, request.usage.cpu) == (("n1", "n2"), 1 << 30, 3 << 30)
    command = request.command
    assert command is not None
    assert command.argv == ("./sort", "--all")
    assert command.env == {"A": "b", "PENSTOCK_EXECUTOR": "1", "PENSTOCK_EXECUTORS": "3"}
    assert (command.cpu_cores, command.memory_bytes, command.limits.memory_max_bytes) == (2.0, 1 << 30, 1 << 30)
    assert command.limits.cpu_cores is None, "shared: idle cores may be used beyond the promise"
    assert {one.command.env["PENSTOCK_EXECUTOR"] for one in work.requests.values() if one.command} == {"0", "1", "2"}
    assert (work.memory_bytes(2 << 30), work.memory_bytes(8 << 30)) == (2 << 30, 3 << 30)


def test_more_executors_than_one_request_can_name_are_refused(fails: Fails) -> None:
    said = fails(2, "submit", "--executors", "99999999", "--application", "a", "--memory", "1G", "--", "true")
    assert said == "penstock submit: --executors: at most 131072; submit several jobs with the same --run"


def test_hard_sizing_is_the_default_and_bounds_cpu_from_the_start() -> None:
    request = executors("--executors", "1", "--application", "sort", "--memory", "1G").requests["executor-0"]
    assert request.executor == Executor(application="sort")
    assert request.command is not None
    assert (request.command.cpu_cores, request.command.limits.cpu_cores) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], "the following arguments are required: JOB.toml, or --executors N … -- COMMAND"),
        (["--executors", "2"], "no command given; write for example `--executors 4 … -- ./sort.sh`"),
        (["--executors", "2", "--", "x"], "--application: name the application"),
        (["--executors", "2", "--application", "x", "--", "x"], "--memory: give each executor's memory"),
        (["--executors", "0", "--", "x"], "--executors: '0' is not a number from 1 on"),
        (["--executors", "1", "--sizing", "soft", "--", "x"], "--sizing: invalid choice: 'soft'"),
        (["--executors", "1", "--memory", "1Q", "--", "x"], "--memory: '1Q': unknown unit 'Q'"),
        (["job.toml", "--executors", "1", "--", "x"], "job.toml: a job file or --executors, not both"),
        (["job.toml", "--input-bytes", "1G"], "--input-bytes: only with --executors; set it in the job file"),
        (["job.toml", "--jvm"], "--jvm: only with --executors"),
        (["job.toml", "--", "x"], "a command requires --executors; a job file has its own"),
        (
            ["--executors", "1", "--application", "a" * 129, "--memory", "1G", "--", "x"],
            "--application: at most 128 characters",
        ),
        (
            ["--executors", "1", "--application", "a", "--memory", "1G", "--opportunistic", "a,b", "--", "x"],
            "--opportunistic: executors are one stage; write none, all or only",
        ),
    ],
)
def test_bad_input_is_one_line(fails: Fails, argv: list[str], line: str) -> None:
    assert fails(2, "submit", *argv).startswith(f"penstock submit: {line}")


# ---------------------------------------------------------------- job files

TASK = '[[task]]\nname = "a"\ncommand = "true"\ncpu = 2\nmemory = "1G"\n'


def _file(directory: Path, executor: str) -> Work:
    path = directory / "job.toml"
    path.write_text(f'name = "j"\n{TASK}[task.executor]\n{executor}\n[[task]]\nname = "b"\ncommand = "true"\n')
    return of_file(path)


def test_a_job_file_defines_which_tasks_are_executors(tmp_path: Path) -> None:
    file = _file(tmp_path, 'application = "sort"\ninput_bytes = "2GiB"\nrun = "r"\nsizing = "shared"\njvm = true')
    asked = file.requests["a"]
    assert asked.executor == Executor(application="sort", input_bytes=2 << 30, run="r", sizing=Sizing.SHARED, jvm=True)
    assert asked.command is not None
    assert (asked.command.limits.cpu_cores, asked.command.cpu_cores) == (None, 2.0)
    assert file.requests["b"].executor is None


@pytest.mark.parametrize(
    ("executor", "line"),
    [
        ('aplication = "x"', "task 'a': executor: unknown key 'aplication'; did you mean 'application'?"),
        ("jvm = true", "task 'a': executor: the key 'application' is missing"),
        ('application = "x"\ninput_bytes = "2Q"', "task 'a': executor: input_bytes: '2Q': unknown unit 'Q'"),
        ('application = "x"\nsizing = "soft"', "task 'a': executor.sizing: 'soft' is unknown; one of hard, shared"),
    ],
)
def test_an_error_in_a_job_file_is_one_line(tmp_path: Path, executor: str, line: str) -> None:
    with pytest.raises(CommandError) as raised:
        _file(tmp_path, executor)
    assert str(raised.value).startswith(f"{tmp_path / 'job.toml'}: {line}")


# ---------------------------------------------------------------- with an agent


@pytest.fixture
def submit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Future[int]]]:
    monkeypatch.setattr(Signals, "_catch", lambda self: None)  # the command runs in a thread
    with ThreadPoolExecutor(1) as pool:

        def start(*argv: str) -> Future[int]:
            work = executors("--application", "sort", "--memory", "64M", *argv)
            return pool.submit(Submission(work, as_json=True).run)

        yield start


def test_all_are_asked_for_at_once_and_waited_for(
    agent: AgentThread, submit: Callable[..., Future[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    running = submit("--executors", "2")
    agent.until(lambda fake: len(fake.placed) == 2)
    (job,) = {job for job, _ in agent.agent.placed}
    (asked,) = agent.agent.called("place")
    assert [task.executor for task in asked.tasks] == [Executor(application="sort")] * 2
    failed = Ended(by=EndedBy.EXIT, exit_status=3, reason="exit status 3")
    agent.do(lambda fake: fake.end_task(job, "executor-1", OK))
    agent.do(lambda fake: fake.end_task(job, "executor-0", failed))
    assert running.result(60) == 1
    tasks: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["tasks"]
    assert [(task["task"], task["state"], task["exit_status"]) for task in tasks] == [
        ("executor-0", "failed", 3),
        ("executor-1", "done", 0),
    ]


def test_one_that_is_stuck_is_reported(
    agent: AgentThread, submit: Callable[..., Future[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    running = submit("--executors", "1")
    agent.until(lambda fake: len(fake.placed) == 1)
    ((job, task),) = agent.agent.placed
    stuck = TaskStuck(job=job, task=task, helper="executor-7", node="far")
    agent.do(lambda fake: fake.placed[job, task].notify("task_stuck", stuck))
    agent.do(lambda fake: fake.end_task(job, task, OK))
    assert running.result(60) == 0
    said = capsys.readouterr().err
    assert "executor-0 is late, and fake has no free resources; executor-7 on far has the most" in said


def test_without_a_master_there_is_no_placement(agent: AgentThread, submit: Callable[..., Future[int]]) -> None:
    agent.agent.has_master = False
    with pytest.raises(CommandError, match="executors are placed by the master, and the agent of fake has none; name"):
        submit("--executors", "1").result(60)
    assert not agent.agent.called("register_job")
