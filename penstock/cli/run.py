"""``penstock run``: one command as a container on this host, as if it had been started here."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.errors import CommandError, usage_error
from penstock.cli.limits import add_class, add_limits, specification, tell, warn
from penstock.model.container import ContainerSpec, Ended, EndedBy

if TYPE_CHECKING:
    import asyncio

    from penstock.cli import direct
    from penstock.client import AgentClient, Container

_ABOUT = "Run one command in a container on this host; its streams, signals and exit status are passed through."
_KILLED = 128 + signal.SIGKILL
#: How long an agent that went away is waited for, and the first and longest pause between two attempts (seconds).
#: How long an agent that went away is waited for, seconds; the command goes on meanwhile. As ``penstock submit``.
_RECONNECT_S = 300.0
#: After which it is said, seconds: most restarts take less.
_SAID_AFTER_S = 2.0
_BACKOFF_S = (0.02, 1.0)


def main(argv: list[str]) -> int:
    """The command; returns the exit status of what it ran."""
    options = _parse(argv)
    spec = _specification(options)
    from penstock import paths
    from penstock.cli import direct  # not for --help

    try:
        with direct.Connection(paths.agent_socket(), "penstock run") as agent:
            return _run_directly(agent, spec, as_json=options.json)
    except direct.Undecided:
        from penstock.cli.session import converse  # asyncio and all: only where it is needed

        return converse(_run(spec, as_json=options.json))


def parser(
    name: str = "run", about: str = _ABOUT, operand: tuple[str, str] = ("-- CMD…", "the command and its arguments")
) -> arguments.Parser:
    """Of this command, and of others that run something in a container."""
    parser = arguments.Parser(name, about)
    add_limits(parser)
    add_class(parser)
    add = parser.add_argument
    add("--detach", action="store_true", help="print the container's id and return; the agent keeps the output")
    add("--json", action="store_true", help="with --detach: print the id, and what is not enforced, as JSON")
    add("--env", type=arguments.key_value, action="append", default=[], metavar="K=V", help="set a variable")
    add("--cwd", type=Path, metavar="DIR", help="where to run (default: here)")
    add("command", nargs=argparse.REMAINDER, metavar=operand[0], help=operand[1])
    return parser


def _parse(argv: list[str]) -> argparse.Namespace:
    cut = argv.index("--") if "--" in argv else len(argv)
    options = parser().parse_args(argv[:cut])
    # A command that came without a leading "--" may have one of its own.
    options.command += argv[cut:] if options.command else argv[cut + 1 :]
    if not options.command:
        raise usage_error("no command given; write for example `penstock run --memory 64M -- sort big.txt`")
    if options.json and not options.detach:
        raise usage_error("--json: only with --detach; otherwise what is printed is the command's own")
    return options


def _specification(options: argparse.Namespace) -> ContainerSpec:
    cwd = (options.cwd or Path.cwd()).absolute()
    if not cwd.is_dir():
        raise usage_error(f"--cwd: {str(cwd)!r} is not a directory")
    environment = dict(os.environ) | dict(options.env)
    return specification(options, tuple(options.command), env=environment, cwd=str(cwd), detach=options.detach)


def _run_directly(agent: direct.Connection, spec: ContainerSpec, *, as_json: bool) -> int:
    from penstock.cli import direct

    if spec.detach:
        started = agent.launch(spec)
        tell("run", started.container, started.not_enforced, as_json=as_json)
        return 0
    signals = direct.Signals()
    started = agent.launch(spec, _standard_streams(), signals)
    warn("run", started.not_enforced)
    try:
        ended = agent.wait(started.container, signals)
    except direct.Lost:
        from penstock.cli.session import converse

        signals.hand_over()
        return converse(_rejoin(started.container, signals))
    return _exit_status(ended, killed_by_us=signals.killed)


async def _run(spec: ContainerSpec, *, as_json: bool) -> int:
    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock run") as agent:
        if spec.detach:
            container = await agent.launch(spec)
            tell("run", container.id, container.not_enforced, as_json=as_json)
            return 0
        signals = _Signals()
        container = await agent.launch(spec, stdio=_standard_streams())
        warn("run", container.not_enforced)
        signals.forward_to(container)
        ended = await container.wait()
    return _exit_status(ended, killed_by_us=signals.killed)


async def _rejoin(name: str, before: direct.Signals) -> int:
    """The agent went away while the command ran: wait for the next one, which finds the container again."""
    from penstock.wire.errors import RpcError

    signals = _Signals(before)
    async with await _reconnect() as agent:
        try:
            container = await agent.attach(name)
        except RpcError as error:
            reason = f"the agent was restarted and does not know it: {error}"
            return _exit_status(Ended(by=EndedBy.LOST, reason=reason), killed_by_us=False)
        signals.forward_to(container)
        ended = await container.wait()
    return _exit_status(ended, killed_by_us=signals.killed)


async def _reconnect() -> AgentClient:
    import asyncio
    import time

    from penstock.client import AgentClient, AgentUnavailable

    began = time.monotonic()
    said = False
    pause, longest = _BACKOFF_S
    while True:
        try:
            return await AgentClient.connect(client="penstock run")
        except AgentUnavailable as error:
            away_s = time.monotonic() - began
            if away_s >= _RECONNECT_S:
                raise AgentUnavailable(f"{error} (tried for {_RECONNECT_S:g} s)") from None
            if away_s >= _SAID_AFTER_S and not said:
                said = True
                patience = f"{_RECONNECT_S:g} s at most"
                _say(f"the agent went away: the command goes on, the next agent is waited for ({patience})")
        await asyncio.sleep(pause)
        pause = min(2 * pause, longest)


class _Signals:
    """As :class:`direct.Signals`, in an event loop; takes over from there what was not sent yet."""

    def __init__(self, before: direct.Signals | None = None) -> None:
        import asyncio

        from penstock.cli.direct import FORWARDED

        self._container: Container | None = None
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._waiting: list[int] | None = None if before is None else list(before.received)
        self._interrupts = 0 if before is None else before.interrupts
        self._sending: set[asyncio.Task[None]] = set()
        self.killed = before is not None and before.killed
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                self._loop.add_signal_handler(number, self._received, number)

    def forward_to(self, container: Container) -> None:
        """From now on."""
        self._container = container
        for number in self._waiting or ():
            self._received(number)

    def _received(self, number: int) -> None:
        if self._container is None:
            if self._waiting is not None:
                self._waiting.append(number)
                return
            assert self._main is not None
            self._main.cancel()
            return
        self._interrupts += number == signal.SIGINT
        self.killed = self._interrupts > 1
        sending = self._loop.create_task(self._send(self._container, number))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, container: Container, number: int) -> None:
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
