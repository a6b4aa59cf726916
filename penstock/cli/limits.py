"""The options for limits of a container, shared by all commands that have them."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.cli import arguments
from penstock.cli.errors import CommandError, note, usage_error
from penstock.model.container import Choice, ContainerSpec, Limits
from penstock.wire.errors import RpcError
from penstock.wire.utf8 import sendable

Value = int | float | str | None
#: Option → its reader, its metavar, its help, and the limits that it sets.
_OPTIONS: dict[str, tuple[Callable[[str], Any], str, str, tuple[str, ...]]] = {
    "--cpu": (arguments.cores_limit, "CORES", "at most CORES cores, for example 0.5", ("cpu_cores",)),
    "--burst": (
        arguments.burst,
        "TIME",
        "CPU time to save up for bursts beyond --cpu, at most 100ms",
        ("cpu_burst_s",),
    ),
    "--cpus": (arguments.cpu_list, "LIST", "only on these processors, none above 8191, for example 0-3,8", ("cpus",)),
    "--memory": (arguments.memory_limit, "SIZE", "at most SIZE of memory, for example 64M", ("memory_max_bytes",)),
    "--disk": (
        arguments.rate_limit,
        "RATE",
        "at most RATE for reading and for writing each, for example 10MB/s",
        ("disk_read_bytes_per_s", "disk_write_bytes_per_s"),
    ),
    "--disk-ops": (
        arguments.count,
        "N",
        "at most N reads, and N writes, per second",
        ("disk_read_ops_per_s", "disk_write_ops_per_s"),
    ),
    "--net": (
        arguments.rate_limit,
        "RATE",
        "send at most at RATE, for example 100Mbit/s",
        ("network_egress_bytes_per_s",),
    ),
    "--net-in": (arguments.rate_limit, "RATE", "receive at most at RATE", ("network_ingress_bytes_per_s",)),
    "--pids": (arguments.count, "N", "at most N processes and threads", ("pids_max",)),
}
#: The agent's name of an unenforced limit → the option that requested it.
_ASKED_BY = {limit: option for option, (_, _, _, limits) in _OPTIONS.items() for limit in limits} | {
    "memory_high_bytes": "--memory",
    "network_rate_bytes_per_s": "--promise-net",
    "opportunistic": "--opportunistic",
    "oom_group": "--oom-group",
}


def add_limits(parser: argparse.ArgumentParser, *, removable: bool = False) -> None:
    """Add the options for limits; with ``removable``, ``none`` removes a limit."""
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
    """Add the option that makes an unenforced limit an error."""
    text = "change or start nothing, and return 1, if the host cannot enforce one of the limits (default: warn)"
    parser.add_argument("--strict", action="store_true", help=text)


def add_class(parser: argparse.ArgumentParser) -> None:
    """Add the options of a container besides its limits."""
    add = parser.add_argument
    add("--name", default="", help="a name to show in the status; earlier runs of a command are known by it")
    add("--opportunistic", action="store_true", help="run on the unused resources of others; may be preempted")
    add(
        "--preempt", choices=[Choice.PREFER.value, Choice.AVOID.value], help="be preempted before others, or after them"
    )
    add(
        "--notice",
        type=arguments.notice,
        metavar="SIGNAL[:TIME]",
        help="signal and grace period (5s) before a preemption, for example USR1:10s",
    )
    add("--promise-net", type=arguments.rate, default=0, metavar="RATE", help="promised sending rate")
    add("--oom-group", action="store_true", help="when out of memory, kill the whole container, not one process")


def changes(options: argparse.Namespace) -> dict[str, Value]:
    """Return the name of each given limit → its value, None for ``none``."""
    found: dict[str, Value] = {}
    for option, (_, _, _, limits) in _OPTIONS.items():
        name = option[2:].replace("-", "_")
        if hasattr(options, name):
            found |= dict.fromkeys(limits, getattr(options, name))
    if "memory_max_bytes" in found:
        found["memory_high_bytes"] = None
        if options.memory_policy == "throttle":  # the two exclude each other
            found["memory_high_bytes"], found["memory_max_bytes"] = found["memory_max_bytes"], None
    return found


def specification(options: argparse.Namespace, argv: tuple[str, ...], **fields: Any) -> ContainerSpec:
    """Return the container described by the options of :func:`add_limits` and :func:`add_class`.

    Raises:
        CommandError: the options contradict each other.
    """
    if len(options.name) > 128:
        raise usage_error("--name: at most 128 characters")
    limits = Limits(**changes(options))  # type: ignore[arg-type]
    if limits.cpu_burst_s is not None and limits.cpu_cores is None:
        raise usage_error("--burst: has no effect without --cpu")
    if not options.opportunistic and (options.preempt or options.notice):
        raise usage_error("--preempt and --notice: only with --opportunistic, as other containers are not preempted")
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


def in_utf8(command: str, spec: ContainerSpec, where: str = "") -> ContainerSpec:
    """Return what can be sent of a container's description; warn of each variable that is left out.

    Raises:
        CommandError: an argument or the directory is not UTF-8. The message begins with ``where``.
    """
    try:
        spec, left_out = sendable(spec)
    except RpcError as error:
        raise usage_error(f"{where}{error}") from None
    if left_out:
        note(command, left_out)
    return spec


def print_container(command: str, container: str, not_enforced: Mapping[str, str], *, as_json: bool) -> None:
    """Print the id of a container that runs on, and warnings about its unenforced limits; or both as JSON."""
    if as_json:
        import json

        print(json.dumps({"container": container, "not_enforced": dict(not_enforced)}), flush=True)
        return
    warn(command, not_enforced)
    print(container, flush=True)


@contextlib.contextmanager
def strict_by_option() -> Iterator[None]:
    """Name the option, as :func:`warn` does, in the error about a strict limit that is not enforced.

    Raises:
        CommandError: the same error, with that name.
    """
    try:
        yield
    except CommandError as error:
        if not (limit := error.limit or _limit_in(str(error))):
            raise
        text = str(error).replace(limit, _by_option(limit), 1)
        raise CommandError(text, status=error.status, of_command=error.of_command) from None


def _limit_in(error: str) -> str:
    """Return the limit that an older agent, whose errors have no ``limit``, names in its message; "" for none."""
    found = re.search(r"\b\w+(?: on \S+)?(?= is not enforced: )", error)
    return found[0] if found is not None else ""


def warn(command: str, not_enforced: Mapping[str, str]) -> None:
    """Warn of each option that the host does not enforce."""
    for option, why in dict.fromkeys((_by_option(name), why) for name, why in not_enforced.items()):
        note(command, f"{option} is not enforced: {why}")


def _by_option(name: str) -> str:
    """Return the agent's name of an unenforced limit with the option in place of the limit: ``--net on eth0``."""
    limit, on, link = name.partition(" on ")
    return _ASKED_BY.get(limit, limit) + on + link
