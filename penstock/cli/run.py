"""``penstock run``: run one command in a container on this host, as if it had been started directly."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import paths
from penstock.cli import arguments
from penstock.cli.errors import CommandError, note, usage_error
from penstock.cli.limits import (
    add_class,
    add_limits,
    in_utf8,
    print_container,
    specification,
    strict_by_option,
    warn,
)
from penstock.cli.session import failures_told
from penstock.client.errors import LOST_WHILE_STARTING, AgentUnavailable, lost_at_restart
from penstock.client.signals import Signals
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.wire import container_methods as m
from penstock.wire.connection import read_params
from penstock.wire.container_api import Attach, ContainerEnded, ContainerRef, Launch, Launched, SignalContainer
from penstock.wire.errors import RpcError

if TYPE_CHECKING:
    import signal

    from penstock.client.session import Session
else:
    import _signal as signal  # as in penstock.client.signals

_ABOUT = "Run one command in a container on this host; its streams, signals and exit status are passed through."
_KILLED = 128 + signal.SIGKILL
#: The longest wait for an agent that went away (seconds); the command runs on meanwhile. As in ``penstock submit``.
_PATIENCE_S = 300.0
#: The user is told of an outage after this time (seconds): most restarts take less.
_TOLD_AFTER_S = 2.0
#: After a signal, the longest wait for the agent's answer to the launch (seconds); then the signal ends this process.
_GRACE_S = 1.0
#: Signals from the user's terminal or supervisor that are passed on to the command.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(argv: list[str]) -> int:
    """Run the command; return the exit status of the command in the container."""
    options = _parse(argv)
    spec = in_utf8("run", _specification(options))
    with strict_by_option(), failures_told():
        return _run(spec, as_json=options.json)


def parser(
    name: str = "run", about: str = _ABOUT, operand: tuple[str, str] = ("-- CMD…", "the command and its arguments")
) -> arguments.Parser:
    """Return the parser of this command, and of others that run something in a container."""
    parser = arguments.Parser(name, about)
    add_limits(parser)
    add_class(parser)
    add = parser.add_argument
    add("--detach", action="store_true", help="print the container's id and return; the agent keeps the output")
    add("--json", action="store_true", help="with --detach: print the id and the unenforced limits as JSON")
    add(
        "--env", type=arguments.key_value, action="append", default=[], metavar="K=V", help="set a variable; repeatable"
    )
    add("--cwd", type=Path, metavar="DIR", help="working directory (default: the current one)")
    add("command", nargs=argparse.REMAINDER, metavar=operand[0], help=operand[1])
    return parser


def _parse(argv: list[str]) -> argparse.Namespace:
    cut = argv.index("--") if "--" in argv else len(argv)
    options = parser().parse_args(argv[:cut])
    # A command that is not preceded by "--" may have a "--" of its own.
    options.command += argv[cut:] if options.command else argv[cut + 1 :]
    if not options.command or not options.command[0]:
        raise usage_error("no command given; write for example `penstock run --memory 64M -- sort big.txt`")
    if options.json and not options.detach:
        raise usage_error("--json: only with --detach; otherwise the output is the command's own")
    return options


def _specification(options: argparse.Namespace) -> ContainerSpec:
    cwd = (options.cwd or Path.cwd()).absolute()
    if not cwd.is_dir():
        raise usage_error(f"--cwd: {str(cwd)!r} is not a directory")
    environment = dict(os.environ) | dict(options.env)
    return specification(options, tuple(options.command), env=environment, cwd=str(cwd), detach=options.detach)


def _run(spec: ContainerSpec, *, as_json: bool) -> int:
    from penstock.client.session import Session

    with Session.connect(
        paths.agent_socket(), "penstock run", patience_s=_PATIENCE_S, told_after_s=_TOLD_AFTER_S
    ) as session:
        command = _Command(session, spec)
        if spec.detach:
            started = command.launch()
            print_container("run", started.container, started.not_enforced, as_json=as_json)
            return 0
        with command.signals:
            warn("run", command.launch((0, 1, 2)).not_enforced)
            ended = command.wait()
    return _exit_status(ended, killed_by_us=command.killed)


class _Command:
    """A command in a container; the owner of its session. Signals are passed on from its launch on."""

    def __init__(self, session: Session, spec: ContainerSpec) -> None:
        self._session = session
        self._spec = spec
        self._container = ""
        self._ended: dict[str, Ended] = {}  # by container: an end may arrive before the launch's answer
        self._interrupts = 0
        self.killed = False
        # nohup, and shells with background jobs, make some signals ignored
        forwarded = (number for number in _FORWARDED if signal.getsignal(number) != signal.SIG_IGN)
        self.signals = Signals(forwarded, self._forward)
        session.owner = self

    def launch(self, stdio: tuple[int, int, int] | None = None) -> Launched:
        """Start the command; ``stdio`` are the descriptors of its standard streams.

        Raises:
            KeyboardInterrupt: a signal arrived, and the agent does not answer.
            RpcError: the agent refused, or the command could not be started.
            AgentUnavailable: the connection was lost during the call.
        """
        spec, session = self._spec, self._session
        if stdio is not None:
            from penstock.client.stdio import pass_stdio

            session.signals = self.signals
            spec = msgspec.structs.replace(spec, stdio=pass_stdio(session.socket_path, stdio))
        try:
            launched = session.call_once(m.LAUNCH, lambda: Launch(container=spec), self._patience_s)
        except ConnectionResetError:
            raise AgentUnavailable(LOST_WHILE_STARTING) from None
        except TimeoutError:
            raise KeyboardInterrupt from None
        self._container = launched.container
        self._forward()
        return launched

    def wait(self) -> Ended:
        """Wait, across restarts of the agent, for the command's end and return its cause."""
        while self._container not in self._ended:
            self._session.wait(None)
        return self._ended[self._container]

    def notified(self, method: str, params: Any) -> None:
        """Called by the session: handle a notification."""
        if method == ContainerEnded.METHOD:
            said = read_params(params, ContainerEnded)
            self._ended[said.container] = said.ended

    def relink(self) -> None:
        """Called by the session: attach to the container at a restarted agent."""
        try:
            self._session.call_once(m.ATTACH, lambda: Attach(container=self._container))
        except RpcError as error:
            self._ended.setdefault(self._container, lost_at_restart(error))
        self._forward()

    def linked(self, linked: bool) -> None:
        """Called by the session: report an outage."""
        if not linked:
            patience = f"{_PATIENCE_S:g} s at most"
            note("run", f"the agent went away: the command goes on, the next agent is waited for ({patience})")

    def _patience_s(self) -> float | None:
        """Return the longest wait for the launch's answer in seconds; None: no limit."""
        return _GRACE_S if self.signals.received else None

    def _forward(self) -> None:
        """Pass received signals on; signals that cannot be sent now follow at :meth:`relink`.

        A second Ctrl-C kills.
        """
        received = self.signals.received
        while received and self._container:
            interrupts = self._interrupts + (received[0] == signal.SIGINT)
            if interrupts > 1:
                sent = self._session.notify(m.KILL, ContainerRef(container=self._container))
            else:
                signalled = SignalContainer(container=self._container, signal=received[0])
                sent = self._session.notify(m.SIGNAL, signalled)
            if not sent:
                return
            del received[0]
            self._interrupts = interrupts
            self.killed = interrupts > 1


def _exit_status(ended: Ended, *, killed_by_us: bool) -> int:
    reason = f": {ended.reason}" if ended.reason else ""
    match ended.by:
        case EndedBy.EXIT | EndedBy.SIGNAL:
            return _KILLED if ended.exit_status is None else ended.exit_status
        case EndedBy.OOM:
            note("run", f"killed, out of memory{reason}")
        case EndedBy.PREEMPTED:
            note("run", f"preempted{reason}")
        case EndedBy.CANCELLED:
            if not killed_by_us:
                note("run", f"cancelled{reason}")
        case EndedBy.DISCONNECTED:
            note("run", f"killed, because the connection to the agent was lost{reason}")
        case EndedBy.REFUSED | EndedBy.FAILED:
            raise CommandError(f"could not be started{reason}")
        case EndedBy.LOST:
            raise CommandError(f"its end was not observed{reason}")
    return _KILLED
