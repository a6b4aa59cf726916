"""Bad input: one clear line, exit status 2, no traceback. And the text of the help."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import __version__, toml_files
from penstock.cli.main import main
from tests.unit.penstock.cli.conftest import Fails

GOOD = '[[task]]\nname = "a"\ncommand = "true"\n'


@pytest.mark.parametrize(("command", "option"), [("up", "--port-file"), ("agent", "--port-file")])
@pytest.mark.parametrize(
    ("path", "why"),
    [("absent/file", "absent: no such directory; make it, or name"), ("", " is a directory; name a file")],
)
def test_a_file_that_cannot_be_written_is_reported_before_anything_begins(
    fails: Fails, tmp_path: Path, command: str, option: str, path: str, why: str
) -> None:
    line = fails(2, command, option, str(tmp_path / path))
    assert line.startswith(f"penstock {command}: {option}: {tmp_path}") and why in line


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["rum"], "penstock: unknown command 'rum'; did you mean 'run'?"),
        (["version"], "penstock: unknown command 'version'; write `penstock --version`"),
        (["ps"], "penstock: unknown command 'ps'; `penstock status` lists containers, `penstock jobs` jobs"),
        (["--vresion"], "penstock: unknown option '--vresion'; one of up, run"),
        (["run"], "penstock run: no command given; write for example `penstock run --memory 64M -- sort big.txt`"),
        (["run", "--"], "penstock run: no command given"),
        (["run", "--", "", "x"], "penstock run: no command given"),
        (["submit", "--executors", "1", "--", ""], "penstock submit: no command given"),
        (
            ["run", "--memory", "12Q", "--", "true"],
            "penstock run: --memory: '12Q': unknown unit 'Q'; write for example 64M, 2GiB or 500MB",
        ),
        (
            ["run", "--memory", "99999999T", "--", "true"],
            "penstock run: --memory: '99999999T' is too large; write less than 2^63 bytes",
        ),
        (["resize", "c-1", "--disk", "99999999T"], "penstock resize: --disk: '99999999T' is too large"),
        (["run", "--cpu", "-1", "--", "true"], "penstock run: --cpu: '-1' is not a number of cores"),
        (["run", "--cpu", "nan", "--", "true"], "penstock run: --cpu: 'nan' is not a number of cores"),
        (["run", "--cpu", "99999", "--", "true"], "penstock run: --cpu: '99999' is more than 65536 cores"),
        (["resize", "c-1", "--cpu", "inf"], "penstock resize: --cpu: 'inf' is more than 65536 cores"),
        (["run", "--cpu"], "penstock run: --cpu: expected one argument; write `--cpu CORES`"),
        (["run", "--preempt"], "penstock run: --preempt: expected one argument; write `--preempt prefer|avoid`"),
        (
            ["config", "show", "agent: expected one argument"],
            "penstock config: agent|master: invalid choice: 'agent: expected one argument'",
        ),
        (["drain", "--timeout", "-5s"], "penstock drain: --timeout: '-5s' is not a quantity; write for example 250ms"),
        (["run", "--burst", "-.5", "x"], "penstock run: --burst: '-.5' is not a quantity; write for example 250ms"),
        (["run", "--memory", "-5M", "x"], "penstock run: --memory: '-5M' is not a quantity; write for example 64M"),
        (
            ["run", "--opportunistic=always", "--", "true"],
            "penstock run: --opportunistic: takes no value; leave 'always' out",
        ),
        (
            ["run", "--memory", "1", "--", "true"],
            "penstock run: --memory: '1' is too little to run with; ask for at least 1 MiB",
        ),
        (["resize", "c-1", "--memory", "1"], "penstock resize: --memory: '1' is too little to run with"),
        (["adopt", "1", "--memory", "1kB"], "penstock adopt: --memory: '1kB' is too little to run with"),
        (["run", "--cpu", "1e-9", "x"], "penstock run: --cpu: '1e-9' is too little to run with; ask for at least 0.01"),
        (["resize", "c-1", "--net", "8bit/s"], "penstock resize: --net: '8bit/s' is too little to run with"),
        (["run", "--net-in", "1B/s", "x"], "penstock run: --net-in: '1B/s' is too little to run with"),
        (["run", "--disk", "1B/s", "x"], "penstock run: --disk: '1B/s' is too little to run with"),
        (["run", "--net", "1Gbps", "--", "true"], "penstock run: --net: '1Gbps': bits or bytes?"),
        (["run", "--env", "A", "--", "true"], "penstock run: --env: 'A' is not KEY=VALUE"),
        (["run", "--cwd", "/nowhere", "--", "true"], "penstock run: --cwd: '/nowhere' is not a directory"),
        (["run", "--memory-policy", "pray", "--", "x"], "penstock run: --memory-policy: invalid choice: 'pray'"),
        (["run", "--memry", "1", "--", "true"], "penstock run: unknown argument '--memry'; did you mean '--memory'?"),
        (["run", "--memry=1", "true"], "penstock run: unknown argument '--memry'; did you mean '--memory'?"),
        (["run", "--name", "n" * 129, "true"], "penstock run: --name: at most 128 characters"),
        (["run", "--burst", "1s", "--cpu", "1", "x"], "penstock run: --burst: '1s' is not between 0 and 100ms"),
        (["run", "--burst", "50ms", "x"], "penstock run: --burst: has no effect without --cpu"),
        (["run", "--cpus", "1-", "x"], "penstock run: --cpus: '1-' is not a list of processors; write for example 0-3"),
        (["run", "--cpus", "5-2", "x"], "penstock run: --cpus: '5-2' ends before it begins; write 2-5"),
        (
            ["run", "--cpus", "0," * 20_480 + "0", "x"],
            "penstock run: --cpus: a list of 40961 characters is too long",
        ),
        (["run", "--cpus", "0-99999", "x"], "penstock run: --cpus: '0-99999' is beyond the last processor of any host"),
        (["run", "--pids", "0", "x"], "penstock run: --pids: '0' is not a number from 1 on"),
        (["run", "--pids", "²", "x"], "penstock run: --pids: '²' is not a number from 1 on"),
        (["run", "--disk-ops", "1.5", "x"], "penstock run: --disk-ops: '1.5' is not a number from 1 on"),
        (["run", "--net-in", "fast", "x"], "penstock run: --net-in: 'fast' is not a quantity"),
        (["run", "--cpu", "none", "x"], "penstock run: --cpu: 'none' is not a number of cores"),
        (["run", "--notice", "HALLO", "x"], "penstock run: --notice: 'HALLO' is not a signal; write for example TERM"),
        (["run", "--notice", "²", "x"], "penstock run: --notice: '²' is not a signal; write for example TERM"),
        (["explain", ""], "penstock explain: JOB: '' is no id; name one"),
        (["reservations", "--delete", ""], "penstock reservations: --delete: '' is no id; name one"),
        (["run", "--notice", "99", "x"], "penstock run: --notice: '99' is not a signal"),
        (["run", "--notice", "TERM:1h", "x"], "penstock run: --notice: '1h' is not between 0 and 300 seconds"),
        (["run", "--notice", "TERM", "x"], "penstock run: --preempt and --notice: only with --opportunistic"),
        (["run", "--preempt", "maybe", "x"], "penstock run: --preempt: invalid choice: 'maybe' (choose from 'prefer'"),
        (["adopt"], "penstock adopt: the following arguments are required: PID"),
        (["adopt", "self"], "penstock adopt: PID: 'self' is not a number from 1 on"),
        (["adopt", "1", "--name", "n" * 129], "penstock adopt: --name: at most 128 characters"),
        (["resize"], "penstock resize: the following arguments are required: CONTAINER"),
        (["resize", "c-1"], "penstock resize: no limit given; write for example `penstock resize CONTAINER --cpu 2"),
        (["resize", "c-1", "--memory", "nono"], "penstock resize: --memory: 'nono' is not a quantity"),
        (["resize", "c-1", "--opportunistic"], "penstock resize: unknown argument '--opportunistic'"),
        (["follow", "c-1"], "penstock follow: the following arguments are required: FILE.json"),
        (["follow", "c-1", "/nowhere.json"], "penstock follow: /nowhere.json: No such file or directory"),
        (["status", "--jsn"], "penstock status: unknown argument '--jsn'; did you mean '--json'?"),
        (["top", "now"], "penstock top: unknown argument 'now'; see `penstock top --help`"),
        (["cancel", ""], "penstock cancel: JOB: '' is no id; name one"),
        (
            ["submit", "--opportunistic", "job.toml"],
            "penstock submit: the following arguments are required: JOB.toml, or --executors N … -- COMMAND; "
            "--opportunistic needs a value: `--opportunistic all JOB.toml`",
        ),
        (["submit"], "penstock submit: the following arguments are required: JOB.toml"),
        (["submit", "/nowhere.toml"], "penstock submit: /nowhere.toml: No such file or directory"),
        (["up", "--set", "node"], "penstock up: --set: 'node' is not KEY=VALUE"),
    ],
)
def test_one_line(fails: Fails, argv: list[str], line: str) -> None:
    assert fails(2, *argv).startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GOOD, "the key 'name' is missing"),
        ('name = "j"', "the key 'task' is missing"),
        ('name = "j"\ntask = []', "task: at least 1 item expected"),
        ('nam = "j"\n' + GOOD, "unknown key 'nam'; did you mean 'name'?"),
        ('name = "j"\n' + GOOD + "comand = 1", "task 'a': unknown key 'comand'; did you mean 'command'?"),
        ('name = "j"\n[[task]]\nname = "a"', "task 'a': the key 'command' is missing"),
        ('name = "j"\n[[task]]\ncommand = "x"', "task 1: the key 'name' is missing"),
        ('name = "j"\n[[task]]\nname = 7\ncommand = "x"', "task 1: name: text expected, and a whole number found"),
        ('name = "j"\n' + GOOD + 'kind = "gpu"', "task 'a': kind: 'gpu' is unknown; one of cpu, disk, network"),
        (
            'name = "j"\n' + GOOD + 'opportunistic = "often"',
            "task 'a': opportunistic: 'often' is unknown; one of true, false, only",
        ),
        ('name = "j"\n' + GOOD + "after = [1]", "task 'a': after[0]: text expected, and a whole number found"),
        ('name = "j"\n' + GOOD + 'memory = "much"', "task 'a': memory: 'much' is not a quantity"),
        ('name = "j"\n' + GOOD + 'input_bytes = "1Q"', "task 'a': input_bytes: '1Q': unknown unit 'Q'"),
        (
            'name = "j"\n' + GOOD + f"input_bytes = {2**64}",
            "task 'a': input_bytes: a whole number of at most 9223372036854775807 expected",
        ),
        ('name = "j"\nmemory = "1Q"\n' + GOOD, "memory: '1Q': unknown unit 'Q'"),
        (
            'name = "j"\n' + GOOD + "memory = 1",
            "task 'a': memory: 1 B is too little to run with; ask for at least 1 MiB",
        ),
        ('name = "j"\n' + GOOD + "cpu = 1e-9", "task 'a': cpu: 1e-09 cores is too little to run with"),
        ('name = "j"\n' + GOOD + "cpu = 0", "task 'a': cpu: a number of more than 0 expected"),
        ('name = "j"\npriority = inf\n' + GOOD, "priority: a number of at most 1e+18 expected"),
        ('name = "j"\n' + GOOD + "cpu = inf", "task 'a': cpu: a number of at most 65536 expected"),
        ('name = "j"\n' + GOOD + "cpu = 99999", "task 'a': cpu: a number of at most 65536 expected"),
        ('name = "j"\n' + GOOD + 'memory = "99999999T"', "task 'a': memory: '99999999T' is too large; write less"),
        ('name = "j"\n' + GOOD + 'inputs = ["no.txt"]', "task 'a': inputs: 'no.txt': No such file or directory"),
        ('name = "j"\n' + GOOD + 'cwd = "none"', "task 'a': cwd: "),
        ('name = "j"\n' + GOOD + 'inputs = ["job.toml"]\ninput_bytes = 1', "task 'a': input_bytes: give either"),
        ('name = "j"\n' + GOOD + 'after = ["b"]', "task 'a': after: there is no task 'b'"),
        ('name = "j"\n' + GOOD + 'after = ["a"]', "tasks wait for each other in a circle: a → a"),
        ('name = "j"\n' + GOOD + GOOD, "task 'a': there are two tasks of this name"),
        ('name = "j"\n[[task]]\nname = "a"\ncommand = []', "task 'a': command: is empty"),
        ('name = "j"\n[[task]]\nname = "a"\ncommand = ""', "task 'a': command: is empty"),
        ('name = "j"\n[[task]]\nname = "a"\ncommand = ["", "x"]', "task 'a': command: is empty"),
        ('name = "j"\n' + GOOD + 'inputs = ["a\\u0000b"]', r"task 'a': inputs: 'a\x00b': no file's name has a null"),
        ('name = "j"\n[[task]]\nname = "a"\ncommand = "a\\u0000b"', "task 'a': command: has a null character"),
        ('name = "j"\n' + GOOD + "env = { N = 4 }", "task 'a': env: 'N': text expected; write the value in quotes"),
        ('name = "j"\nenv = { N = true }\n' + GOOD, "env: 'N': text expected; write the value in quotes"),
        (
            'name = "j"\n' + GOOD + 'env = { "A=B" = "c" }',
            "task 'a': env: 'A=B': the name of a variable is not empty",
        ),
        (
            'name = "j"\n' + GOOD + 'env = { "" = "c" }',
            "task 'a': env: '': the name of a variable is not empty",
        ),
        ('name = "j"\n' + GOOD + 'env = { A = "\\u0000" }', "task 'a': env: 'A': has a null character"),
        (
            'name = "j"\n' + GOOD.replace("[[task]]", "[task]"),
            "task: a list of tables expected; write [[task]], in double",
        ),
        ('name = "j"\n' + GOOD + 'executor = "sort"', "task 'a': executor: a table expected, and text found"),
        ('name = "j"\n' + GOOD + 'cpu = "2"', "task 'a': cpu: a number expected, and text found"),
        ('name = "j"\ntask = 3', "task: a list expected, and a whole number found"),
        ('name = "j"\ntask = [3]', "task 1: a table expected, and a whole number found"),
    ],
)
def test_a_bad_job_file_names_file_task_and_key(fails: Fails, tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    assert fails(2, "submit", str(path)).startswith(f"penstock submit: {path}: {line}")


def test_a_fault_of_a_job_files_syntax_has_line_and_column(tmp_path: Path, fails: Fails) -> None:
    path = tmp_path / "job.toml"
    path.write_text("name = 'j'\nmemory = \n")
    assert fails(2, "submit", str(path)) == f"penstock submit: {path}:2: Invalid value (column 10)"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path, fails: Fails) -> None:
    """Editors of Windows write one, and other ends of lines."""
    path = tmp_path / "job.toml"
    path.write_bytes("\ufeffname = 'j'\rmemory = \r".encode())
    assert fails(2, "submit", str(path)) == f"penstock submit: {path}:2: Invalid value (column 10)"


def test_a_file_that_is_too_large_is_refused(fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toml_files, "_MOST_BYTES", 1 << 20)
    path = tmp_path / "job.toml"
    path.write_bytes(bytes((1 << 20) + 1))
    line = fails(2, "submit", str(path))
    assert line == f"penstock submit: {path}: more than 1 MiB; is it the right file? write a smaller one"


def test_a_request_in_a_file_that_is_no_json_names_it_and_a_remedy(tmp_path: Path, fails: Fails) -> None:
    path = tmp_path / "request.json"
    path.write_text('{"a": }')
    line = fails(2, "reserve", f"@{path}")
    assert line.startswith(f"penstock reserve: {path}: not JSON: Expecting value: line 1 column 7")
    assert line.endswith("; correct it, or write the expression as RDL")


@pytest.mark.parametrize(("name", "why"), [("", "Is a directory"), ("/dev/null", "the key 'model' is missing")])
def test_a_scenario_that_is_no_file_is_not_reported_as_absent(
    tmp_path: Path, fails: Fails, name: str, why: str
) -> None:
    path = tmp_path / name
    assert fails(2, "simulate", str(path)).startswith(f"penstock simulate: {path}: {why}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "it is empty, or its end is missing"),
        ("[]", "a table expected, and a list found"),
        ("{}", "a profile needs at least one value of one resource"),
        ('{"cpu_core": [1]}', "there is no key 'cpu_core'"),
        ('{"cpu_cores": [1, 0]}', "cpu_cores[1]: a number of more than 0 expected"),
        ('{"memory_bytes": [1]}', "memory_bytes: 1 B is too little to run with; ask for at least 1 MiB"),
        ('{"memory_bytes": ["1G"]}', "memory_bytes[0]: a whole number expected, and text found"),
        ('{"cpu_cores": [1], "slot_s": 0}', "slot_s: a number of at least 0.1 expected"),
    ],
)
def test_a_bad_profile_names_file_and_field(fails: Fails, tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    assert fails(2, "follow", "c-1", str(path)).startswith(f"penstock follow: {path}: {line}")


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "true"],
        ["adopt", str(os.getpid())],
        ["resize", "c-1", "--cpu", "1"],
        ["follow", "c-1", "none"],
        ["status"],
        ["status", "--json"],
        ["top", "--once"],
        ["submit"],
    ],
)
def test_no_agent(fails: Fails, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, argv: list[str]) -> None:
    socket = tmp_path / "agent.sock"
    monkeypatch.setenv("PENSTOCK_SOCKET", str(socket))
    if argv == ["submit"]:
        job = tmp_path / "job.toml"
        job.write_text('name = "j"\n' + GOOD)
        argv.append(str(job))
    line = fails(1, *argv)
    assert line == f"penstock {argv[0]}: no agent at {socket}; start one with `penstock up`"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "usage" in capsys.readouterr().out.lower()
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["submit"],
        ["plan"],
        ["place"],
        ["uninstall", "--config"],
        ["agent", "--config"],
        ["master", "--config"],
        ["up", "--port-file"],
    ],
)
def test_no_name_in_an_error_controls_the_terminal(fails: Fails, tmp_path: Path, argv: list[str]) -> None:
    line = fails(2, *argv, tmp_path / "absent\x1b[2J\n" / "a\x1b[2J\x9bb")
    assert line.isprintable() and line.startswith(f"penstock {argv[0]}: ")


def test_a_program_in_place_of_a_job_file_is_answered_with_the_command_that_runs_it(
    tmp_path: Path, fails: Fails
) -> None:
    path = tmp_path / "sort.sh"
    path.write_text("#!/bin/sh\nsort big.txt\n")
    path.chmod(0o755)
    assert fails(2, "submit", path).endswith(f"; to run a program, write `penstock run -- {path}`")
    path.chmod(0o644)
    assert "to run a program" not in fails(2, "submit", path)
