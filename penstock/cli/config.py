"""``penstock config``: show, check and change the configuration of a daemon.

The keys are known to the daemon's own command (``--show-config``, ``--check-config``) and to the running daemon.
"""

from __future__ import annotations

import argparse
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock import extras
from penstock.cli import arguments
from penstock.cli.errors import CommandError, usage_error
from penstock.cli.json_output import print_json
from penstock.cli.plain_text import printable
from penstock.cli.session import asked
from penstock.wire.errors import ErrorCode, RpcError

if TYPE_CHECKING:
    from penstock.client.blocking_requests import BlockingRequests
    from penstock.wire.config_api import ConfigSet, Daemon

_HELP = """usage: penstock config COMMAND [ARGUMENT…]

The configuration of the agent or of the master (docs/configuration.md).

  show    every key, its value and its source: from a file, or with --running in a running daemon
  check   report the errors in a file
  set     change keys of a running daemon

  penstock config COMMAND --help says more about a command."""
_DAEMONS = ("agent", "master")
_SOURCES = """Later sources override earlier ones: defaults, FILE, PENSTOCK_AGENT_KEY or PENSTOCK_MASTER_KEY in this
command's environment, --set. A running daemon reads its file again on SIGHUP (systemctl reload penstock-agent)."""
_SET = """A VALUE is written as in the file (250ms, 0.8, las_mq). All KEYs are changed or none; only those that can
change in a running daemon (`penstock config show agent` marks them with *). The change holds until the daemon reads
its file again or restarts, unless --persist also writes it to the file. Operators only; requests to the master go
through this host's agent."""


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    name = argv[0] if argv else "--help"
    if name in {"-h", "--help"}:
        print(_HELP)
        return 0
    if name not in _COMMANDS:
        raise usage_error(f"unknown command {name[:80]!r}; one of {', '.join(_COMMANDS)}")
    return _COMMANDS[name](argv[1:])


# ---------------------------------------------------------------- show, check


def _of_sources(name: str, about: str) -> arguments.Parser:
    parser = arguments.Parser(f"config {name}", about, _SOURCES)
    parser.add_argument("daemon", choices=_DAEMONS, metavar="agent|master", help="the daemon")
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="default: /etc/penstock/DAEMON.toml, if it exists"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="same as FILE, as in the daemons' own options")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    return parser


def _show(argv: list[str]) -> int:
    parser = _of_sources("show", "Show every key, its value, its source and its meaning.")
    parser.add_argument("--running", action="store_true", help="the values in force in the running daemon")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(argv)
    if not options.running:
        return _read("--show-config", options, *(["--json"] if options.json else []))
    if options.file or options.config or options.set:
        raise usage_error("--running asks the daemon; leave FILE and --set out")
    from penstock.cli import config_table

    found = asked("config", lambda agent: agent.show_config(options.daemon))
    config_table.show(found.keys, as_json=options.json)
    return 0


def _check(argv: list[str]) -> int:
    parser = _of_sources("check", "Report the errors in a configuration; print nothing if there are none.")
    return _read("--check-config", parser.parse_args(argv))


def _read(what: str, options: argparse.Namespace, *more: str) -> int:
    if options.file is not None and options.config is not None:
        raise usage_error("FILE is given twice; leave --config out")
    passed = [what]
    file = options.file or options.config or _usual(options.daemon)
    if file is not None:
        passed += ["--config", str(file)]
    for pair in options.set:
        passed += ["--set", pair]
    return _command_of(options.daemon, [*passed, *more])


def _usual(daemon: str) -> Path | None:
    file = Path(f"/etc/penstock/{daemon}.toml")
    return file if file.exists() else None


def _command_of(daemon: str, argv: list[str]) -> int:
    from importlib.metadata import entry_points

    for entry in entry_points(group="penstock.commands", name=daemon):
        try:
            return int(entry.load()(argv))
        except ImportError as error:
            raise CommandError(f"{error}; install it with `{extras.install(daemon)}`") from None
    raise CommandError(f"the {daemon} is not installed; install it with `{extras.install(daemon)}`")


# ---------------------------------------------------------------- set


def _pair(text: str) -> tuple[str, str]:
    """Parse KEY=VALUE; the name of a daemon, which `show` and `check` have there, gets a remedy."""
    if text in _DAEMONS:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE; write `--daemon {text}`")
    return arguments.key_value(text)


def _set(argv: list[str]) -> int:
    parser = arguments.Parser("config set", "Change keys of a running daemon.", _SET)
    parser.add_argument("values", nargs="+", type=_pair, metavar="KEY=VALUE", help="the new values")
    parser.add_argument("--daemon", choices=_DAEMONS, default="agent", help="the daemon; %(default)s")
    parser.add_argument("--persist", action="store_true", help="also write the change to the daemon's file")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")
    options = parser.parse_args(argv)
    values: dict[str, str] = {}
    for key, text in options.values:
        if key in values:
            raise usage_error(f"{key} is given twice")
        values[key] = text
    if options.persist and not extras.is_installed("tomlkit"):
        raise CommandError(f"--persist: No module named 'tomlkit'; install it with `{extras.install(options.daemon)}`")
    answer = asked("config", lambda agent: _changed(agent, values, options.daemon))
    if options.persist:
        _persist(answer, values)
    if options.json:
        print_json({**msgspec.structs.asdict(answer), "persisted": options.persist})
        return 0
    for one in answer.changed:
        until = _until(answer, one.stronger, persisted=options.persist)
        print(printable(f"{one.key}: {one.was} → {one.now}{until}"))
    return 0


async def _changed(agent: BlockingRequests, values: dict[str, str], daemon: Daemon) -> ConfigSet:
    """Change the keys.

    Raises:
        CommandError: a key is one of the other daemon.
        RpcError: the daemon refuses the change.
    """
    try:
        return await agent.set_config(values, daemon)
    except RpcError as error:
        if error.code is ErrorCode.BAD_REQUEST:
            await _refuse_keys_of_other(agent, values, daemon)
        raise


async def _refuse_keys_of_other(agent: BlockingRequests, values: dict[str, str], daemon: Daemon) -> None:
    other: Daemon = "master" if daemon == "agent" else "agent"
    try:
        own, others = [(await agent.show_config(each)).keys for each in (daemon, other)]
    except RpcError:
        return  # there is no master
    for key in values:
        if key in others and key not in own:
            raise usage_error(f"{key} is a key of the {other}, not of the {daemon}; add `--daemon {other}`")


def _persist(answer: ConfigSet, values: dict[str, str]) -> None:
    """Write the change to the daemon's file.

    Raises:
        CommandError: it has none, or on another host, or it cannot be written.
    """
    from penstock.config import file

    here = socket.gethostname()
    try:
        if not answer.file:
            raise file.NotWritten("the daemon reads no file; give it one with --config")
        if answer.host != here:
            raise file.NotWritten(f"{answer.file} is on {answer.host}, and this is {here}")
        file.write(Path(answer.file), values)
    except file.NotWritten as error:
        lines = file.lines(values)
        raise CommandError(f"the change is in force, but not persistent: {error}; write there: {lines}") from None


def _until(answer: ConfigSet, stronger: str, *, persisted: bool) -> str:
    """Say how long a change holds, if not for good."""
    if persisted and stronger:
        return f"  (also in {answer.file}; but {stronger} overrides the file at the next reload)"
    return "" if persisted else "  (until the next reload or restart; --persist makes it permanent)"


_COMMANDS = {"show": _show, "check": _check, "set": _set}
