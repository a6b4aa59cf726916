"""What the daemons' commands share: options, configuration, logs, one line for what went wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock import settings

T = TypeVar("T", bound=msgspec.Struct)
#: Runs a daemon until it is told to stop; the path is where to write the addresses that it chose.
Run = Callable[[T, Path | None], None]


class StartError(Exception):
    """Why a daemon cannot start: one line for the operator."""


def command(
    name: str,
    about: str,
    of: type[T],
    daemon: Callable[[], Run[T]],
    argv: list[str] | None,
    check: Callable[[T], None] = lambda config: None,
) -> int:
    """Read the configuration and run; the exit status: 2 for bad input, 1 for a daemon that cannot start.

    ``daemon`` imports and returns what runs: help and errors of the configuration come without it. ``check`` raises
    SettingsError where keys contradict each other.
    """
    arguments = _parser(name, about, of).parse_args(argv)
    try:
        config = settings.load(of, arguments.config, dict(pair(text) for text in arguments.set))
        check(config)
    except settings.SettingsError as error:
        print(f"penstock {name}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    run = daemon()
    from penstock import logs

    logs.configure(arguments.log_level)
    try:
        run(config, arguments.port_file)
    except StartError as error:
        print(f"penstock {name}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _parser(name: str, about: str, of: type[msgspec.Struct]) -> argparse.ArgumentParser:
    keys = "\n".join(_describe(field) for field in msgspec.structs.fields(of))
    parser = argparse.ArgumentParser(
        prog=f"penstock {name}",
        description=about,
        epilog=f"configuration keys (TOML, or --set KEY=VALUE):\n{keys}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"TOML file, for example /etc/penstock/{name}.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    parser.add_argument("--port-file", type=Path, metavar="FILE", help="write the chosen addresses to FILE, as JSON")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def pair(text: str) -> tuple[str, str]:
    """``KEY=VALUE`` of ``--set``.

    Raises:
        SettingsError: it is not.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise settings.SettingsError(f"--set: {text!r} is not KEY=VALUE")
    return key, value


def _describe(field: msgspec.structs.FieldInfo) -> str:
    """One line per key, from the declaration itself."""
    schema = msgspec.json.schema(field.type)
    return f"  {field.encode_name:<28} {schema.get('description', '')} [{field.default!r}]"
