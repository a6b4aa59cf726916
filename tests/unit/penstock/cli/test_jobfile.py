"""The requests in a job file."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.cli import jobfile, submit
from penstock.cli.errors import CommandError
from penstock.cli.jobfile import JobTable, TaskTable, of_file
from penstock.cli.work import Work
from penstock.model.container import Limits
from penstock.model.executor import Executor
from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.work import OpportunisticJob

JOB = """
name = "count"
env = { LANG = "C", A = "job" }
[[task]]
name = "read"
command = ["cat", "in.txt"]
kind = "disk"
inputs = ["in.txt", "in.txt"]
memory = "10M"
[[task]]
name = "left"
stage = "map"
command = "wc -w < in.txt > left"
after = ["read"]
input_bytes = "1k"
memory = "30M"
cpu = 0.5
env = { A = "task" }
[[task]]
name = "right"
stage = "map"
command = "wc -l < in.txt > right"
after = ["read"]
memory = 31457280
opportunistic = true
"""


@pytest.fixture
def job(tmp_path: Path) -> Work:
    (tmp_path / "in.txt").write_bytes(b"x" * 100)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return of_file(path)


@pytest.mark.parametrize("table", [JobTable, TaskTable, Executor])
def test_the_help_names_every_key(table: type[msgspec.Struct]) -> None:
    text = jobfile.__doc__ or ""
    keys = table.__struct_fields__
    assert [
        key for key in keys if not re.search(rf"``(\[task\.)?{key}\b|^ +(\[\[)?{key}( = |\]\])", text, re.MULTILINE)
    ] == []


def test_inputs_become_work_of_the_task_s_kind(job: Work, tmp_path: Path) -> None:
    read = job.requests["read"]
    assert (read.usage, read.command_kind) == (KindAmounts(disk=200.0), ResourceKind.DISK)
    assert read.command is not None
    assert read.command.argv == ("cat", "in.txt")
    assert read.command.cwd == str(tmp_path)
    assert job.requests["left"].usage == KindAmounts(cpu=1024.0)
    assert job.requests["right"].usage == KindAmounts(), "of unknown size"


def test_a_directory_counts_as_the_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "a").write_bytes(b"x" * 300)
    (tmp_path / "data" / "deep" / "b").write_bytes(b"x" * 20)
    (tmp_path / "big").write_bytes(b"x" * 5000)
    (tmp_path / "data" / "link").symlink_to(tmp_path / "big")
    (tmp_path / "data" / "deep" / "up").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    file = tmp_path / "job.toml"
    for inputs, size_bytes in ((["data"], 320.0), (["link"], 320.0), (["data", "big"], 5320.0)):
        file.write_text(f'name = "j"\n[[task]]\nname = "t"\ncommand = "x"\ninputs = {inputs}\n')
        assert of_file(file).requests["t"].usage == KindAmounts(cpu=size_bytes)


def test_a_directory_of_many_tasks_is_walked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(b"x" * 300)
    read, walked = os.scandir, list[str]()
    monkeypatch.setattr(os, "scandir", lambda path: walked.append(path) or read(path))
    tasks = "".join(f'[[task]]\nname = "t{number}"\ncommand = "x"\ninputs = ["data"]\n' for number in range(5))
    (tmp_path / "job.toml").write_text(f'name = "j"\n{tasks}')
    work = of_file(tmp_path / "job.toml")
    assert {each.usage for each in work.requests.values()} == {KindAmounts(cpu=300.0)}
    assert walked == [str(tmp_path / "data")]


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    read = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return read(path)

    monkeypatch.setattr(os, "scandir", refuse)
    (tmp_path / "job.toml").write_text('name = "j"\n[[task]]\nname = "t"\ncommand = "x"\ninputs = ["data"]\n')
    with pytest.raises(CommandError) as caught:
        of_file(tmp_path / "job.toml")
    deep = str(tmp_path / "data" / "deep")
    assert str(caught.value).endswith(
        f"task 't': inputs: 'data': {deep!r} in it: Permission denied; give input_bytes instead"
    )


def test_limits_promises_and_environment(job: Work) -> None:
    left = job.requests["left"].command
    assert left is not None
    assert left.argv == ("/bin/sh", "-c", "wc -w < in.txt > left")
    assert left.limits == Limits(cpu_cores=0.5, memory_max_bytes=30 * 1024**2)
    assert (left.cpu_cores, left.memory_bytes) == (0.5, 30 * 1024**2)
    assert left.env == {"LANG": "C", "A": "task"}
    right = job.requests["right"].command
    assert right is not None
    assert right.opportunistic


def test_stages_and_the_job_s_memory(job: Work) -> None:
    assert [task.stage for task in job.graph.tasks.values()] == ["read", "map", "map"]
    assert job.memory_bytes(1 << 40) == 60 * 1024**2
    assert job.memory_bytes(50 * 1024**2) == 50 * 1024**2


def test_memory_as_written_wins(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('name = "j"\nmemory = "1G"\n[[task]]\nname = "a"\ncommand = "true"\n')
    assert of_file(path).memory_bytes(1) == 1 << 30


def slack_job(tmp_path: Path, line: str = "", opportunistic: OpportunisticJob = None) -> Work:
    path = tmp_path / "slack.toml"
    path.write_text(
        f'name = "j"\n{line}\n[[task]]\nname = "a"\nstage = "map"\ncommand = "true"\n'
        '[[task]]\nname = "b"\ncommand = "true"\nopportunistic = "only"\n'
    )
    return of_file(path, opportunistic=opportunistic)


def test_a_job_opts_out_of_slack_or_names_the_stages_that_may_have_it(tmp_path: Path) -> None:
    plain = slack_job(tmp_path)
    assert plain.opportunistic is None
    assert [task.opportunistic for task in plain.graph.tasks.values()] == [False, "only"]
    assert slack_job(tmp_path, "opportunistic = false").opportunistic is False
    in_file = 'opportunistic = ["map", "b"]'
    assert slack_job(tmp_path, in_file).opportunistic == ["map", "b"]
    named = slack_job(tmp_path, in_file, submit.which("only"))
    assert named.opportunistic == "only", "the command line comes before the file"
    assert [submit.which(text) for text in ("none", "all", "map, b")] == [False, True, ["map", "b"]]


def test_a_stage_that_there_is_not_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"opportunistic: no stage 'mop'; did you mean 'map'\?"):
        slack_job(tmp_path, 'opportunistic = ["mop"]')
    with pytest.raises(CommandError, match=r"opportunistic: no stage 'reduce'; stages: map, b$"):
        slack_job(tmp_path, 'opportunistic = ["reduce"]')
    with pytest.raises(CommandError, match="--opportunistic: no stage 'c'"):
        slack_job(tmp_path, opportunistic=["c"])


def test_an_error_about_a_large_job_is_one_short_line(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    tasks = [f'[[task]]\nname = "{index}"\ncommand = "true"\n' for index in range(1000)]
    path.write_text('name = "j"\n' + "".join(tasks))
    with pytest.raises(CommandError, match=r"no stage 'reduce'; stages: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …$"):
        of_file(path, opportunistic=["reduce"])
    after = [f'{task}after = ["{(index - 1) % 1000}"]\n' for index, task in enumerate(tasks)]
    path.write_text('name = "j"\n' + "".join(after))
    with pytest.raises(CommandError, match=r"in a circle: (\d+ → ){9}… → \d+$"):
        of_file(path)


@pytest.mark.parametrize("in_file", [True, False])
def test_a_strict_job_starts_no_command_without_its_limits(tmp_path: Path, in_file: bool) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f"strict = {str(in_file).lower()}\n" + JOB)
    (tmp_path / "in.txt").touch()
    job = of_file(path)
    assert {request.command.strict for request in job.requests.values() if request.command} == {in_file}
    job = of_file(path, strict=True)  # as --strict does
    assert all(request.command.strict for request in job.requests.values() if request.command)


def test_a_commands_last_argument_may_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('name = "j"\n[[task]]\nname = "a"\ncommand = ["grep", "-c", ""]\n')
    command = of_file(path).requests["a"].command
    assert command is not None
    assert command.argv == ("grep", "-c", "")
