"""The options that limit a container, the same for every command that has them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

from penstock.cli import arguments
from penstock.cli.errors import usage_error
from penstock.model.container import Choice, ContainerSpec, Limits

Value = int | float | str | None
#: Option → how it is read, its metavar, what it does, and the limits that it sets.
_OPTIONS: dict[str, tuple[Callable[[str], Any], str, str, tuple[str, ...]]] = {
    "--cpu": (arguments.cores_limit, "CORES", "at most so many cores, for example 0.5", ("cpu_cores",)),
    "--burst": (
        arguments.burst,
        "TIME",
        "CPU time to save up for bursts beyond --cpu, at most 100ms",
        ("cpu_burst_s",),
    ),
    "--cpus": (arguments.cpu_list, "LIST", "only on these processors, for example 0-3,8", ("cpus",)),
    "--memory": (arguments.memory_limit, "SIZE", "at most so much memory, for example 64M", ("memory_max_bytes",)),
    "--disk": (
        arguments.rate_limit,
        "RATE",
        "read and write at most so fast each, for example 10MB/s",
        ("disk_read_bytes_per_s", "disk_write_bytes_per_s"),
    ),
    "--disk-ops": (
        arguments.count,
        "N",
        "at most so many reads, and writes, a second",
        ("disk_read_ops_per_s", "disk_write_ops_per_s"),
    ),
    "--net": (
        arguments.rate_limit,
        "RATE",
        "send at most so fast, for example 100Mbit/s",
        ("network_egress_bytes_per_s",),
    ),
    "--net-in": (arguments.rate_limit, "RATE", "receive at most so fast", ("network_ingress_bytes_per_s",)),
    "--pids": (arguments.count, "N", "at most so many processes and threads", ("pids_max",)),
}
#: What the agent may say that it does not enforce → the option that asked for it.
_ASKED_BY = {limit: option for option, (_, _, _, limits) in _OPTIONS.items() for limit in limits} | {
    "memory_high_bytes": "--memory",
    "network_bytes_per_s": "--promise-net",
    "opportunistic": "--opportunistic",
    "oom_group": "--oom-group",
}


def add_limits(parser: argparse.ArgumentParser, *, removable: bool = False) -> None:
    """The limits; with ``removable``, ``none`` takes one away."""
    group = parser.add_argument_group("limits", "'none' removes a limit" if removable else None)
    for option, (read, metavar, text, _) in _OPTIONS.items():
        reads = arguments.or_none(read) if removable else read
        group.add_argument(option, type=reads, metavar=metavar, help=text, default=argparse.SUPPRESS)
    group.add_argument(
        "--memory-policy",
        choices=["kill", "throttle"],
        default="kill",
        help="beyond --memory: kill (memory.max, the default) or reclaim and slow down (memory.high)",
    )
    add_strict(group)


def add_strict(parser: argparse._ActionsContainer) -> None:
    """The option by which a limit that is not enforced is an error."""
    text = "do nothing, and return 1, where the host cannot enforce one of the limits (otherwise that is a warning)"
    parser.add_argument("--strict", action="store_true", help=text)


def add_class(parser: argparse.ArgumentParser) -> None:
    """What a container is, besides its limits."""
    add = parser.add_argument
    add("--name", default="", help="a name to show in the status")
    add("--opportunistic", action="store_true", help="run on what others leave unused; may be preempted")
    add("--preempt", choices=[Choice.PREFER, Choice.AVOID], help="be preempted before others, or after them")
    add(
        "--notice",
        type=arguments.notice,
        metavar="SIGNAL[:TIME]",
        help="before being preempted get a signal and some time (5s), for example USR1:10s",
    )
    add("--promise-net", type=arguments.rate, default=0, metavar="RATE", help="be able to send at least so fast")
    add("--oom-group", action="store_true", help="out of memory, die as a whole and not one process of it")


def changes(options: argparse.Namespace) -> dict[str, Value]:
    """Name of each limit that was given → its value, None for ``none``."""
    found: dict[str, Value] = {}
    for option, (_, _, _, limits) in _OPTIONS.items():
        name = option[2:].replace("-", "_")
        if hasattr(options, name):
            found |= dict.fromkeys(limits, getattr(options, name))
    if "memory_max_bytes" in found:
        found["memory_high_bytes"] = None
        if options.memory_policy == "throttle":  # one of the two is meant, and the other goes
            found["memory_high_bytes"], found["memory_max_bytes"] = found["memory_max_bytes"], None
    return found


def specification(options: argparse.Namespace, argv: tuple[str, ...], **fields: Any) -> ContainerSpec:
    """A container as :func:`add_limits` and :func:`add_class` describe it.

    Raises:
        CommandError: options that do not go together.
    """
    if len(options.name) > 128:
        raise usage_error("--name: at most 128 characters")
    limits = Limits(**changes(options))  # type: ignore[arg-type]
    if limits.cpu_burst_s is not None and limits.cpu_cores is None:
        raise usage_error("--burst: there is nothing to exceed without --cpu")
    if not options.opportunistic and (options.preempt or options.notice):
        raise usage_error("--preempt and --notice: only what is --opportunistic is preempted")
    return ContainerSpec(
        argv=argv,
        name=options.name,
        limits=limits,
        cpu_cores=limits.cpu_cores or 0.0,
        memory_bytes=limits.memory_max_bytes or limits.memory_high_bytes or 0,
        network_bytes_per_s=options.promise_net,
        opportunistic=options.opportunistic,
        preempt=Choice(options.preempt or Choice.NORMAL),
        notice=options.notice,
        oom_group=options.oom_group,
        strict=options.strict,
        **fields,
    )


def tell(command: str, container: str, not_enforced: Mapping[str, str], *, as_json: bool) -> None:
    """The id of a container that goes on without us; what is not enforced of it beside, or as JSON with it."""
    if as_json:
        import json

        print(json.dumps({"container": container, "not_enforced": dict(not_enforced)}), flush=True)
        return
    warn(command, not_enforced)
    print(container, flush=True)


def warn(command: str, not_enforced: Mapping[str, str]) -> None:
    """A line for each option that the host does not enforce."""
    for option, why in dict.fromkeys((_ASKED_BY.get(name, name), why) for name, why in not_enforced.items()):
        print(f"penstock {command}: {option} is not enforced: {why}", file=sys.stderr, flush=True)
