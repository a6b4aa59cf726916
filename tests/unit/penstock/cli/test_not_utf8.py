"""Arguments, variables and directories whose bytes are not UTF-8, which no message can carry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import adopt
from penstock.cli.main import main
from penstock.wire.jobs_api import JobView
from tests.fakes.agent_thread import AgentThread
from tests.fakes.http_pages import http_pages
from tests.unit.penstock.cli.conftest import Fails

CAFE = os.fsdecode(b"caf\xe9")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, named in Latin-1."""
    path = tmp_path / CAFE
    path.mkdir()
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def running() -> Iterator[subprocess.Popen[bytes]]:
    """A process with such an argument, which ends with its input."""
    code = "print(flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code, b"caf\xe9"], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before its exec it has our command line
        yield process


def test_an_argument_is_named_with_the_remedy(agent: AgentThread, fails: Fails) -> None:
    line = fails(2, "run", "--detach", "--", "cat", CAFE)
    assert line.startswith(r"penstock run: command: argument 1, 'caf\xe9', is not UTF-8 (rename what it names, or let")
    assert fails(2, "run", CAFE).startswith(r"penstock run: command: 'caf\xe9' is not UTF-8")
    assert agent.agent.called("launch") == []


def test_a_variable_is_left_out_and_named(
    agent: AgentThread, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEGACY", CAFE)
    monkeypatch.setenv(CAFE, "x")
    monkeypatch.setenv("MODERN", "café")
    assert main(["run", "--detach", "x"]) == 0
    [call] = agent.agent.called("launch")
    assert call.container.env == {name: value for name, value in os.environ.items() if name not in {"LEGACY", CAFE}}
    assert capsys.readouterr().err == "penstock run: left out of the environment, as not UTF-8: LEGACY, caf\\xe9\n"


def test_a_directory_is_named_with_the_remedy(directory: Path, fails: Fails) -> None:
    line = fails(2, "run", "--detach", "x")
    assert line.startswith("penstock run: cwd: '") and line.endswith(
        rf"{directory.parent}/caf\xe9' is not UTF-8 (rename it, or give another directory)"
    )


def test_a_job_files_directory_is_named_with_file_and_task(directory: Path, fails: Fails) -> None:
    Path("job.toml").write_text('name = "j"\n[[task]]\nname = "a"\ncommand = "true"\n')
    line = fails(2, "submit", "job.toml")
    assert line.startswith("penstock submit: job.toml: task 'a': cwd: ") and r"/caf\xe9' is not UTF-8" in line


@pytest.mark.parametrize("text", [f"LEGACY={CAFE}", f"{CAFE}=x"])
@pytest.mark.parametrize("options", [[], ["--executors", "2", "--application", "a", "--memory", "1G"]])
def test_a_variable_that_was_asked_for_is_refused(
    agent: AgentThread, fails: Fails, options: list[str], text: str
) -> None:
    command = "submit" if options else "run"
    line = fails(2, command, *options, "--env", text, "--", "x")
    assert line.startswith(f"penstock {command}: --env: '") and r"caf\xe9" in line and "is not UTF-8" in line
    assert agent.agent.called("launch") == []


def test_executors_in_such_a_directory_are_refused(directory: Path, fails: Fails) -> None:
    line = fails(2, "submit", "--executors", "2", "--application", "a", "--memory", "1G", "--", "x")
    assert line.startswith("penstock submit: cwd: ")


def test_a_process_with_such_an_argument_is_adopted_and_shown_without_it(
    agent: AgentThread, running: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert adopt.main([str(running.pid)]) == 0
    [call] = agent.agent.called("adopt")
    assert call.container.argv[-1] == "caf�"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "argv", [["run", "--name", CAFE, "--detach", "x"], ["kill", CAFE], ["resize", CAFE, "--cpu", "1"], ["logs", CAFE]]
)
def test_any_other_text_is_named(agent: AgentThread, fails: Fails, argv: list[str]) -> None:
    assert fails(2, *argv) == rf"penstock {argv[0]}: 'caf\xe9' is not UTF-8, as text in messages must be"


#: Python then encodes in ASCII (PEP 538, PEP 540).
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def in_ascii(*argv: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "penstock.cli.main", *argv]
    return subprocess.run(command, env=os.environ | ASCII, capture_output=True, timeout=60, check=False)


def test_a_character_that_the_locale_lacks_is_replaced() -> None:
    done = in_ascii("--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"usage: penstock COMMAND [ARGUMENT?]")


def test_json_is_in_utf_8_in_any_locale(agent: AgentThread) -> None:
    agent.agent.views = [JobView(job="j-1", name="café", user="eve", origin="a", state="running", submitted_at=1.0)]
    done = in_ascii("jobs", "--json", "j-1")
    assert done.stderr == b""
    assert [view["name"] for view in json.loads(done.stdout)] == ["café"]
    assert b"caf?" in in_ascii("jobs", "j-1").stdout


PLAN = """{"capacity": "<1core,1GB>", "bundles": {"b": "<1GB,1core>"},
"requests": [{"name": "café", "rdl": "window(atom(b,1,1,10,10),0,20)"}]}"""
ROUND = '{"at": 0, "capacity": [1, 1, 1, 1], "nodes": [], "jobs": [{"job": "café"}]}'


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["config", "show", "agent", "FILE", "--json"], 'state_dir = "/tmp/café"\n'),
        (["plan", "FILE", "--json"], PLAN),
        (["place", "FILE", "--json"], ROUND),
        (["simulate", "--list", "--json"], ""),
    ],
)
def test_json_of_an_installed_command_is_in_utf_8_in_any_locale(argv: list[str], text: str, tmp_path: Path) -> None:
    file = tmp_path / "é"
    file.write_text(text, encoding="utf-8")
    done = in_ascii(*(str(file) if word == "FILE" else word for word in argv))
    assert (done.returncode, done.stderr) == (0, b"")
    json.loads(done.stdout.decode())
    assert not done.stdout.isascii() and "caf?" not in done.stdout.decode()


def test_json_of_the_master_is_in_utf_8_in_any_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_pages(lambda path, _: (200, json.dumps([{"application": "café"}]).encode())) as port:
        monkeypatch.setenv("PENSTOCK_MASTER_HTTP", f"127.0.0.1:{port}")
        done = in_ascii("profile", "list", "--json")
    assert (json.loads(done.stdout.decode()), done.stderr) == ([{"application": "café"}], b"")
