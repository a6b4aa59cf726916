"""``penstock master``: read the configuration, run the daemon."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from penstock import settings


def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    from master.config import MasterConfig

    keys = "\n".join(_describe(field) for field in msgspec.structs.fields(MasterConfig))
    parser = argparse.ArgumentParser(
        prog="penstock master",
        description="The placement master: admits jobs and places tasks on the nodes whose agents register with it.",
        epilog=f"configuration keys (TOML, or --set KEY=VALUE):\n{keys}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file, for example /etc/penstock/master.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    parser.add_argument("--port-file", type=Path, metavar="FILE", help="write the chosen addresses to FILE, as JSON")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    arguments = parser.parse_args(argv)
    try:
        config = settings.load(MasterConfig, arguments.config, dict(_pair(text) for text in arguments.set))
        config.check()
    except settings.SettingsError as error:
        print(f"penstock master: {error}", file=sys.stderr)
        return 2
    from master.daemon import StartError, run
    from penstock import logs

    logs.configure(arguments.log_level)
    try:
        run(config, arguments.port_file)
    except StartError as error:
        print(f"penstock master: {error}", file=sys.stderr)
        return 1
    return 0


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise settings.SettingsError(f"--set: {text!r} is not KEY=VALUE")
    return key, value


def _describe(field: msgspec.structs.FieldInfo) -> str:
    """One line per key, from the declaration itself."""
    schema = msgspec.json.schema(field.type)
    return f"  {field.encode_name:<28} {schema.get('description', '')} [{field.default!r}]"
