"""``JOB.toml``: a job as a graph of commands, checked before any request is sent.

    name = "wordcount"

    [[task]]
    name = "split"
    command = ["split", "-n", "l/4", "big.txt", "part."]
    kind = "disk"
    inputs = ["big.txt"]

    [[task]]
    name = "count"
    command = "cat part.* | sort | uniq -c > counts.txt"     # a string goes to sh -c
    after = ["split"]
    inputs = ["big.txt"]
    memory = "256M"

Paths are relative to the file's directory, which is also the commands' working directory (``cwd``). A task's work is
the total size of its ``inputs`` (or ``input_bytes``); a directory counts as all files in it, without those behind
links. The job's ``memory``, by which the master admits it, defaults to the largest total memory of tasks at the same
depth of the graph, but at most this host's memory.

A task's ``opportunistic`` allows it to run on slack, where it may be preempted: ``false`` (the default), ``true`` (if
it finds no regular resources), ``"only"`` (on slack only, so that it never displaces other work). The job's
``opportunistic`` overrides that of its tasks: ``false`` opts out, a list names the stages that may.

Other keys of a task: ``kind`` (the resource that it mainly uses: cpu, the default, disk or network), ``stage`` (tasks
of one stage are alike; default: the task's name), ``cpu`` (cores; a promise and a limit, as ``memory``), ``env``. A
command's environment is the job's ``env``, its own, and PATH, HOME, USER, LOGNAME and SHELL of its user; it inherits
no variable of your shell. Other keys of the job: ``fail_fast`` (true: the first task that does not succeed cancels all
others), ``priority`` (the larger goes first, on a host without a master).

With ``strict = true`` a task whose host cannot enforce one of its limits does not start: it fails with the reason.

``[task.executor]`` after a task makes it an executor, whose demand is learnt from run to run: ``application`` (the name
under which it is learnt), ``input_bytes`` (of the whole run), ``run`` (jobs with the same value are one run),
``sizing`` (``"hard"`` or ``"shared"``), ``jvm`` (its Java heaps follow its memory). Until a prediction exists, its
``cpu`` and ``memory`` are its reservation.
"""

import contextlib
import os
import stat
from pathlib import Path
from typing import Annotated, Any

import msgspec

from penstock.cli.errors import usage_error
from penstock.cli.executors import executor_limits
from penstock.cli.limits import in_utf8
from penstock.cli.work import Work
from penstock.model.container import MOST_CORES, ContainerSpec, Limits, wrong_variable
from penstock.model.executor import Executor
from penstock.model.floors import limits_too_small
from penstock.model.near_names import did_you_mean
from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.units import QuantityError, parse_bytes
from penstock.model.work import Bytes, Name, Opportunistic, OpportunisticJob, TaskRequest
from penstock.opgraph import GraphError, TaskGraph, TaskNode
from penstock.toml_files import TomlFileError, read_toml

#: Keys of the tables whose values may be text with a unit, such as "256M".
_QUANTITIES = frozenset({"input_bytes", "memory"})
#: The most stages that an error names.
_NAMED = 10


class TaskTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[task]]``. ``stage`` defaults to the task's own name."""

    name: Name
    command: str | list[str]
    kind: ResourceKind = ResourceKind.CPU
    inputs: list[str] = []
    input_bytes: Bytes | None = None
    memory: Bytes = 0
    after: list[str] = []
    stage: Annotated[str, msgspec.Meta(max_length=128)] = ""
    cpu: Annotated[float, msgspec.Meta(gt=0, le=MOST_CORES)] | None = None
    env: dict[str, str] = {}
    cwd: str = "."
    opportunistic: Opportunistic = False
    executor: Executor | None = None


class JobTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. ``env`` applies to every task; a task's own ``env`` overrides it."""

    name: Name
    task: Annotated[list[TaskTable], msgspec.Meta(min_length=1)]
    memory: Bytes | None = None
    priority: Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)] = 0.0
    fail_fast: bool = False
    env: dict[str, str] = {}
    opportunistic: Opportunistic | list[str] | None = None
    strict: bool = False


def of_file(path: Path, *, opportunistic: OpportunisticJob = None, strict: bool = False) -> Work:
    """Return the job of a file; ``opportunistic`` and ``strict`` are the command line's, None and False: the file's.

    Raises:
        CommandError: status 2; the message names the file, the task and the key.
    """
    table = _read(path)
    strict = strict or table.strict
    sizes_bytes: dict[Path, int] = {}
    requests = {task.name: _request(path, task, table.env, sizes_bytes, strict=strict) for task in table.task}
    try:
        graph = TaskGraph(
            TaskNode(task.name, task.stage or task.name, tuple(task.after), task.memory, task.opportunistic)
            for task in table.task
        )
    except GraphError as error:
        raise usage_error(f"{path}: {error}") from None
    stages = dict.fromkeys(task.stage or task.name for task in table.task)
    for where, given in (("opportunistic", table.opportunistic), ("--opportunistic", opportunistic)):
        unknown = [stage for stage in given if stage not in stages] if isinstance(given, list) else []
        if unknown:
            some = ", ".join([*stages][:_NAMED]) + (", …" if len(stages) > _NAMED else "")
            hint = did_you_mean(unknown[0], stages, f"stages: {some}")
            raise usage_error(f"{path}: {where}: no stage {unknown[0][:128]!r}; {hint}")
    return Work(
        name=table.name,
        graph=graph,
        requests=requests,
        opportunistic=table.opportunistic if opportunistic is None else opportunistic,
        priority=table.priority,
        fail_fast=table.fail_fast,
        given_memory_bytes=table.memory,
    )


def _request(
    path: Path, task: TaskTable, env: dict[str, str], sizes_bytes: dict[Path, int], *, strict: bool
) -> TaskRequest:
    where = f"{path}: task {task.name!r}: "
    if not task.command or not task.command[0]:  # of a list only the program: its arguments may be empty
        raise usage_error(f"{where}command: is empty")
    if "\0" in "".join(task.command):
        raise usage_error(f"{where}command: has a null character, which no argument may have; remove it")
    argv = ("/bin/sh", "-c", task.command) if isinstance(task.command, str) else tuple(task.command)
    cwd = (path.parent / task.cwd).absolute()
    if not cwd.is_dir():
        raise usage_error(f"{where}cwd: {str(cwd)!r} is not a directory")
    limits = Limits(cpu_cores=task.cpu, memory_max_bytes=task.memory or None)
    for limit, wrong, remedy in limits_too_small(limits):
        raise usage_error(f"{where}{limit.partition('_')[0]}: {wrong}; {remedy}")
    command = ContainerSpec(
        argv=argv,
        name=task.name,
        env=env | task.env,
        cwd=str(cwd),
        limits=limits if task.executor is None else executor_limits(task.executor, task.cpu, task.memory),
        cpu_cores=task.cpu or 0.0,
        memory_bytes=task.memory,
        opportunistic=bool(task.opportunistic),
        strict=strict,
    )
    return TaskRequest(
        task=task.name,
        usage=KindAmounts.single(task.kind, _input_bytes(path.parent, task, where, sizes_bytes)),
        memory_bytes=task.memory,
        command=in_utf8("submit", command, where),
        command_kind=task.kind,
        executor=task.executor,
    )


def _input_bytes(directory: Path, task: TaskTable, where: str, sizes_bytes: dict[Path, int]) -> int:
    """Return the size of a task's input; 0: unknown. ``sizes_bytes`` keeps that of each path for other tasks."""
    if task.input_bytes is not None:
        if task.inputs:
            raise usage_error(f"{where}input_bytes: give either this or inputs")
        return task.input_bytes
    total = 0
    for name in task.inputs:
        try:
            path = directory / name
            if path not in sizes_bytes:
                sizes_bytes[path] = _size_bytes(path)
            total += sizes_bytes[path]
        except FileNotFoundError as error:
            reason = "give input_bytes if an earlier task creates it" if task.after else "inputs must exist"
            raise usage_error(f"{where}inputs: {name!r}: {error.strerror}; {reason}") from None
        except OSError as error:
            within = f"{error.filename!r} in it: " if error.filename != str(directory / name) else ""
            raise usage_error(f"{where}inputs: {name!r}: {within}{error.strerror}; give input_bytes instead") from None
        except ValueError:  # of stat(), for a null character
            raise usage_error(f"{where}inputs: {name!r}: no file's name has a null character; remove it") from None
    return total


def _size_bytes(path: Path) -> int:
    """Return the size of a file, or of all files in a directory, without those that links in it lead to.

    Raises:
        OSError: the file or directory, or a directory in it, cannot be read.
    """
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    total, unread = 0, [str(path)]
    while unread:
        with contextlib.suppress(FileNotFoundError), os.scandir(unread.pop()) as entries:  # removed meanwhile
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    unread.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def _read(path: Path) -> JobTable:
    try:
        _, document = read_toml(path)
    except TomlFileError as error:
        raise usage_error(f"{error}{_if_program(path)}") from None
    tables = document.get("task")
    if isinstance(tables, dict):
        raise usage_error(f"{path}: task: a list of tables expected; write [[task]], in double brackets, before each")
    _check_keys(path, document, JobTable, "")
    for index, table in enumerate(tables if isinstance(tables, list) else []):
        if isinstance(table, dict):
            _check_keys(path, table, TaskTable, _task_at(document, index))
            if isinstance(table.get("executor"), dict):
                _check_keys(path, table["executor"], Executor, f"{_task_at(document, index)}executor: ")
    try:
        return msgspec.convert(document, JobTable)
    except msgspec.ValidationError as error:
        raise usage_error(f"{path}: {_located(error, document)}") from None


def _if_program(path: Path) -> str:
    """Return what to do with a file that is no job but a program."""
    if not (path.is_file() and os.access(path, os.X_OK)):
        return ""
    return f"; to run a program, write `penstock run -- {path.absolute()}`"


def _check_keys(path: Path, table: dict[str, Any], of: type[msgspec.Struct], where: str) -> None:
    """Refuse unknown keys, and replace quantities with a unit by bytes."""
    known = of.__struct_fields__
    for key, value in table.items():
        if key not in known:
            hint = did_you_mean(key, known, f"known keys: {', '.join(known)}")
            raise usage_error(f"{path}: {where}unknown key {key!r}; {hint}")
        if key == "env" and isinstance(value, dict):
            _check_environment(value, f"{path}: {where}env: ")
        if key in _QUANTITIES and isinstance(value, str):
            try:
                table[key] = parse_bytes(value)
            except QuantityError as error:
                raise usage_error(f"{path}: {where}{key}: {error}") from None


def _check_environment(variables: dict[str, Any], where: str) -> None:
    """Refuse variables that no process can have."""
    for name, value in variables.items():
        if not isinstance(value, str):
            raise usage_error(f"{where}{name!r}: text expected; write the value in quotes")
        for wrong, remedy in wrong_variable(name, value):
            raise usage_error(f"{where}{name!r}: {wrong}; {remedy}")


def _located(error: msgspec.ValidationError, document: dict[str, Any]) -> str:
    """Return ``task 'count': kind: …``: the task's name, the key, and the error."""
    from penstock.model.decode_errors import explained  # only errors need it

    at, wrong = explained(error, JobTable)
    wrong = wrong.replace(" or nothing", "")  # a value that TOML does not have
    if at.startswith("task["):
        index, _, rest = at.removeprefix("task[").partition("]")
        # "[...]" in a list's item: msgspec omits an index that it does not know
        where = _task_at(document, int(index)) if index.isdigit() else ""
        key = rest.lstrip(".")
        return f"{where}{f'{key}: ' if key else ''}{wrong}"
    return f"{at}: {wrong}" if at else wrong


def _task_at(document: dict[str, Any], index: int) -> str:
    """Return the task's name, or its position if it has none."""
    table = document["task"][index]
    name = table.get("name") if isinstance(table, dict) else None
    return f"task {name!r}: " if isinstance(name, str) else f"task {index + 1}: "
