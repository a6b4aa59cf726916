"""The common part of the daemons' commands: options, configuration, logs, and one-line errors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock import paths
from penstock.cli import config_table
from penstock.cli.arguments import Parser, key_value
from penstock.cli.errors import CommandError, note
from penstock.config import declaration, rendering, settings
from penstock.durable import replace_file

if TYPE_CHECKING:
    from penstock.config.live_config import LiveConfig

T = TypeVar("T", bound=msgspec.Struct)
#: Runs a daemon until it is told to stop; the path is the file for the addresses that it chose.
Run = Callable[["LiveConfig[T]", Path | None], None]


class StartError(Exception):
    """A daemon cannot start: one line for the operator."""


def command(
    name: str,
    about: str,
    of: type[T],
    daemon: Callable[[], Run[T]],
    argv: list[str] | None,
    check: Callable[[T], None] = lambda config: None,
) -> int:
    """Read the configuration and run; return the exit status: 2 for bad input, 1 for a daemon that cannot start.

    ``daemon`` imports and returns the function to run, so that help and errors of the configuration need no such
    import. ``check`` raises SettingsError if keys contradict each other.
    """
    try:
        arguments = _parser(name, about, of).parse_args(argv)
        sources = settings.Sources(arguments.config, dict(arguments.set), f"PENSTOCK_{name.upper()}_", os.environ)
        loaded = settings.read(of, sources, check)
    except (CommandError, settings.SettingsError) as error:
        for fault in error.faults if isinstance(error, settings.SettingsError) else [error]:
            note(name, str(fault))
        return 2
    if arguments.check_config:
        return 0
    if arguments.show_config:
        config_table.show(rendering.document(loaded, {}), as_json=arguments.json)
        return 0
    if arguments.port_file is not None and (why := paths.why_not_writable(arguments.port_file)):
        note(name, f"--port-file: {why}")
        return 2
    run = daemon()
    from penstock import logs
    from penstock.config.live_config import LiveConfig

    logs.configure(arguments.log_level)
    file = arguments.config.absolute() if arguments.config is not None else None
    live_config = LiveConfig(loaded, lambda: settings.read(of, sources, check), check, file)
    try:
        run(live_config, arguments.port_file)
    except StartError as error:
        note(name, str(error))
        return 1
    return 0


def write_port_file(path: Path, addresses: Mapping[str, str]) -> None:
    """Write the addresses that a daemon chose, for the process that started it.

    Raises: StartError: the file cannot be written.
    """
    try:
        replace_file(path, json.dumps(addresses).encode() + b"\n", mode=0o644)
    except OSError as error:
        raise StartError(f"--port-file: {path}: {error.strerror}") from error


def _parser(name: str, about: str, of: type[msgspec.Struct]) -> Parser:
    keys = "\n".join(
        f"  {key.name:<28} {key.description} [{key.default}]{' *' if key.live else ''}" for key in declaration.keys(of)
    )
    parser = Parser(
        name,
        about,
        f"configuration keys (TOML, PENSTOCK_{name.upper()}_KEY=VALUE, or --set KEY=VALUE; those with * are read again "
        f"on SIGHUP):\n{keys}",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"TOML file, for example /etc/penstock/{name}.toml")
    parser.add_argument(
        "--set", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable"
    )
    parser.add_argument("--check-config", action="store_true", help="print the faults of the configuration, and end")
    parser.add_argument("--show-config", action="store_true", help="print every key, its value and its source, and end")
    parser.add_argument("--json", action="store_true", help="with --show-config: as JSON")
    parser.add_argument("--port-file", type=Path, metavar="FILE", help="write the chosen addresses to FILE, as JSON")
    levels = ["debug", "info", "warning", "error"]
    parser.add_argument("--log-level", default="info", choices=levels, help="default: info")
    return parser
