"""``penstock run``: one command as a container on this host, as if it had been started here."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from penstock.cli import arguments
from penstock.cli.errors import CommandError, usage_error
from penstock.cli.session import converse
from penstock.client import AgentClient, Container
from penstock.model.container import ContainerSpec, Ended, EndedBy, Limits

_KILLED = 128 + signal.SIGKILL
#: What the user's terminal or supervisor sends to us is meant for the command.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: Limits by their name in the specification → the option that sets them.
_OPTIONS = {
    "cpu_cores": "--cpu",
    "memory_max_bytes": "--memory",
    "memory_high_bytes": "--memory",
    "disk_read_bytes_per_s": "--disk",
    "disk_write_bytes_per_s": "--disk",
    "network_egress_bytes_per_s": "--net",
}


def main(argv: list[str]) -> int:
    """The command; returns the exit status of what it ran."""
    options = _parse(argv)
    return converse(_run(_specification(options)))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.Parser(
        "run",
        "Run one command in a container on this host; its streams, signals and exit status are passed through.",
        "Exit status: the command's; 128 + n when signal n ended it (137 too when it was out of memory or preempted,\n"
        "with the reason on standard error); 1 when it could not be started.",
    )
    add = parser.add_argument
    add("--cpu", type=arguments.cores, metavar="CORES", help="at most so many cores, for example 0.5")
    add("--memory", type=arguments.size, metavar="SIZE", help="at most so much memory, for example 64M")
    add(
        "--memory-policy",
        choices=["kill", "throttle"],
        default="kill",
        help="beyond --memory: kill (memory.max, the default) or reclaim and slow down (memory.high)",
    )
    add("--disk", type=arguments.rate, metavar="RATE", help="read and write at most so fast each, for example 10MB/s")
    add("--net", type=arguments.rate, metavar="RATE", help="send at most so fast, for example 100Mbit/s")
    add("--opportunistic", action="store_true", help="run on what others leave unused; may be preempted")
    add("--name", default="", help="a name to show in the status")
    add("--detach", action="store_true", help="print the container's id and return; the agent keeps the output")
    add("--env", type=arguments.key_value, action="append", default=[], metavar="K=V", help="set a variable")
    add("--cwd", type=Path, metavar="DIR", help="where to run (default: here)")
    add("command", nargs=argparse.REMAINDER, metavar="-- CMD…")
    cut = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:cut])
    # A command that came without a leading "--" may have one of its own.
    options.command += argv[cut:] if options.command else argv[cut + 1 :]
    if not options.command:
        raise usage_error("no command given; write for example `penstock run --memory 64M -- sort big.txt`")
    return options


def _specification(options: argparse.Namespace) -> ContainerSpec:
    cwd = (options.cwd or Path.cwd()).absolute()
    if not cwd.is_dir():
        raise usage_error(f"--cwd: {str(cwd)!r} is not a directory")
    if len(options.name) > 128:
        raise usage_error("--name: at most 128 characters")
    throttle = options.memory_policy == "throttle"
    return ContainerSpec(
        argv=tuple(options.command),
        name=options.name,
        env=dict(os.environ) | dict(options.env),
        cwd=str(cwd),
        limits=Limits(
            cpu_cores=options.cpu,
            memory_max_bytes=None if throttle else options.memory,
            memory_high_bytes=options.memory if throttle else None,
            disk_read_bytes_per_s=options.disk,
            disk_write_bytes_per_s=options.disk,
            network_egress_bytes_per_s=options.net,
        ),
        cpu_cores=options.cpu or 0.0,
        memory_bytes=options.memory or 0,
        opportunistic=options.opportunistic,
        detach=options.detach,
    )


async def _run(spec: ContainerSpec) -> int:
    async with await AgentClient.connect(client="penstock run") as agent:
        if spec.detach:
            container = await agent.launch(spec)
            _warn(container)
            print(container.id)
            return 0
        signals = _Signals()
        container = await agent.launch(spec, stdio=_standard_streams())
        _warn(container)
        signals.forward_to(container)
        ended = await container.wait()
    return _exit_status(ended, killed_by_us=signals.killed)


class _Signals:
    """Until the command runs, a signal ends us; then it is the command's. A second Ctrl-C kills."""

    def __init__(self) -> None:
        self._container: Container | None = None
        self._main = asyncio.current_task()
        self._interrupts = 0
        self._sending: set[asyncio.Task[None]] = set()
        self.killed = False
        for number in _FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                asyncio.get_running_loop().add_signal_handler(number, self._received, number)

    def forward_to(self, container: Container) -> None:
        """From now on."""
        self._container = container

    def _received(self, number: signal.Signals) -> None:
        if self._container is None:
            assert self._main is not None
            self._main.cancel()
            return
        self._interrupts += number is signal.SIGINT
        self.killed = self._interrupts > 1
        sending = asyncio.ensure_future(self._send(self._container, number))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, container: Container, number: signal.Signals) -> None:
        from penstock.client import AgentUnavailable
        from penstock.wire.errors import RpcError

        try:
            await (container.kill() if self.killed else container.signal(number))
        except (RpcError, AgentUnavailable):
            return  # it has ended, or wait() says why it cannot be reached


def _standard_streams() -> tuple[int, int, int]:
    """Ours; what was closed is /dev/null."""

    def usable(descriptor: int) -> int:
        try:
            os.fstat(descriptor)
        except OSError:
            return os.open(os.devnull, os.O_RDWR)
        return descriptor

    return usable(0), usable(1), usable(2)


def _warn(container: Container) -> None:
    for option, why in dict.fromkeys((_OPTIONS.get(name, name), why) for name, why in container.not_enforced.items()):
        _say(f"{option} is not enforced: {why}")


def _say(text: str) -> None:
    print(f"penstock run: {text}", file=sys.stderr, flush=True)


def _exit_status(ended: Ended, *, killed_by_us: bool) -> int:
    reason = f": {ended.reason}" if ended.reason else ""
    match ended.by:
        case EndedBy.EXIT | EndedBy.SIGNAL:
            return _KILLED if ended.exit_status is None else ended.exit_status
        case EndedBy.OOM:
            _say(f"killed, out of memory{reason}")
        case EndedBy.PREEMPTED:
            _say(f"preempted{reason}")
        case EndedBy.CANCELLED:
            if not killed_by_us:
                _say(f"cancelled{reason}")
        case EndedBy.DISCONNECTED:
            _say(f"killed, because the connection to the agent was lost{reason}")
        case EndedBy.REFUSED | EndedBy.FAILED:
            raise CommandError(f"could not be started{reason}")
        case EndedBy.LOST:
            raise CommandError(f"nobody saw how it ended{reason}")
    return _KILLED
