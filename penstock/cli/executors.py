"""``penstock submit --executors``: similar long-running commands of an application; their demand is learnt by run.

The use in earlier runs of an application determines where its next executors are placed and which resources they get at
which time; until then, the promises given here are their reservation (Elasecutor §IV.C).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from penstock.cli import arguments
from penstock.cli.errors import usage_error
from penstock.cli.limits import in_utf8
from penstock.cli.work import Work
from penstock.model.container import MOST_AT_ONCE, ContainerSpec, Limits
from penstock.model.executor import Executor, Sizing
from penstock.model.resources import KindAmounts
from penstock.model.work import TaskRequest
from penstock.opgraph import TaskGraph, TaskNode

_STAGE = "executors"
#: Options that require --executors, by their names in the parsed options.
_ONLY_HERE = ("application", "input_bytes", "cpu", "memory", "run", "sizing", "jvm", "env", "node")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that replace JOB.toml; their default is None, or an empty list."""
    group = parser.add_argument_group("executors", "long-running commands of an application, all alike")
    add = group.add_argument
    add("--executors", type=arguments.count, metavar="N", help="run N; each finds 0 to N-1 in $PENSTOCK_EXECUTOR")
    add("--application", metavar="NAME", help="the application; its earlier runs predict this run's use")
    add("--input-bytes", type=arguments.size, metavar="SIZE", help="input of the whole run, for example 10GB")
    add(
        "--cpu",
        type=arguments.cores_limit,
        metavar="CORES",
        help="promise for each; its reservation until its use can be predicted (default: 1)",
    )
    add("--memory", type=arguments.memory_limit, metavar="SIZE", help="promise and limit for each, for example 2G")
    add("--run", metavar="NAME", help="jobs of the same NAME are one run of the application")
    add(
        "--sizing",
        choices=[one.value for one in Sizing],
        metavar="|".join(Sizing),
        help="limits (hard, the default) or guarantees follow the demand; guarantees leave idle capacity to others",
    )
    add("--jvm", action="store_true", default=None, help="make the heaps of its Java processes follow its memory")
    add("--env", type=arguments.key_value, action="append", metavar="K=V", help="set a variable; repeatable")
    add("--node", action="append", metavar="NODE", help="run on this node only; repeatable")


def refuse_alone(options: argparse.Namespace) -> None:
    """Raises: CommandError: an option that requires --executors was given without it."""
    for name in _ONLY_HERE:
        if getattr(options, name) is not None:
            raise usage_error(f"--{name.replace('_', '-')}: only with --executors; set it in the job file instead")


def of_executors(options: argparse.Namespace, command: tuple[str, ...]) -> Work:
    """Return a job of one stage with one task per executor.

    Raises:
        CommandError: status 2; the message names the option.
    """
    _check(options, command)
    executor = _executor(options)
    spec = in_utf8("submit", _specification(options, command, executor))  # warns once for all of them
    requests = {f"executor-{index}": _request(options, spec, executor, index) for index in range(options.executors)}
    return Work(
        name=options.application,
        graph=TaskGraph(TaskNode(task, _STAGE, (), request.memory_bytes) for task, request in requests.items()),
        requests=requests,
        opportunistic=options.opportunistic,
    )


def _check(options: argparse.Namespace, command: tuple[str, ...]) -> None:
    if options.executors > MOST_AT_ONCE:
        raise usage_error(f"--executors: at most {MOST_AT_ONCE}; submit several jobs with the same --run")
    if options.job is not None:
        raise usage_error(f"{options.job}: a job file or --executors, not both; write the command behind --")
    if not command or not command[0]:
        raise usage_error("no command given; write for example `--executors 4 … -- ./sort.sh`")
    if not options.application:
        raise usage_error("--application: name the application, so that its next run can be predicted from this one")
    if options.memory is None:
        raise usage_error("--memory: give each executor's memory, for example 2G")
    if isinstance(options.opportunistic, list):
        raise usage_error("--opportunistic: executors are one stage; write none, all or only")


def _executor(options: argparse.Namespace) -> Executor:
    executor = Executor(
        application=options.application,
        input_bytes=options.input_bytes or 0,
        run=options.run or "",
        sizing=Sizing(options.sizing or Sizing.HARD),
        jvm=bool(options.jvm),
    )
    for option, text in (("--application", executor.application), ("--run", executor.run)):
        if len(text) > 128:
            raise usage_error(f"{option}: at most 128 characters")
    return executor


def _specification(options: argparse.Namespace, command: tuple[str, ...], executor: Executor) -> ContainerSpec:
    """Return the specification that all executors share."""
    cores: float = options.cpu or 1.0
    return ContainerSpec(
        argv=command,
        env=dict(options.env or ()),
        cwd=str(Path.cwd()),
        limits=executor_limits(executor, cores, options.memory),
        cpu_cores=cores,
        memory_bytes=options.memory,
        opportunistic=bool(options.opportunistic),
        strict=options.strict,
    )


def _request(options: argparse.Namespace, spec: ContainerSpec, executor: Executor, index: int) -> TaskRequest:
    own = {"PENSTOCK_EXECUTOR": str(index), "PENSTOCK_EXECUTORS": str(options.executors)}
    return TaskRequest(
        task=f"executor-{index}",
        usage=KindAmounts(cpu=executor.input_bytes / options.executors),
        memory_bytes=options.memory,
        nodes=tuple(dict.fromkeys(options.node or ())),
        command=msgspec.structs.replace(spec, name=f"{options.application}-{index}"[:128], env=spec.env | own),
        executor=executor,
    )


def executor_limits(executor: Executor, cores: float | None, memory_bytes: int) -> Limits:
    """Return the initial limits: the promises; no CPU limit if idle cores may be used, too."""
    ceiling = None if executor.sizing is Sizing.SHARED else cores
    return Limits(cpu_cores=ceiling, memory_max_bytes=memory_bytes or None)
