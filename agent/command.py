"""``penstock agent``: read the configuration, run the daemon."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from penstock import settings


def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    from agent.config import AgentConfig

    keys = "\n".join(_describe(field) for field in msgspec.structs.fields(AgentConfig))
    parser = argparse.ArgumentParser(
        prog="penstock agent",
        description="The node agent: queues, limits and reports for one Linux host.",
        epilog=f"configuration keys (TOML, or --set KEY=VALUE):\n{keys}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file, for example /etc/penstock/agent.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    parser.add_argument("--port-file", type=Path, metavar="FILE", help="write the chosen addresses to FILE, as JSON")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    arguments = parser.parse_args(argv)
    try:
        overrides = dict(_pair(text) for text in arguments.set)
        config = settings.load(AgentConfig, arguments.config, overrides)
    except settings.SettingsError as error:
        print(f"penstock agent: {error}", file=sys.stderr)
        return 2
    from agent.daemon import StartError, run
    from penstock import logs

    logs.configure(arguments.log_level)
    try:
        run(config, arguments.port_file)
    except StartError as error:
        print(f"penstock agent: {error}", file=sys.stderr)
        return 1
    return 0


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise settings.SettingsError(f"--set: {text!r} is not KEY=VALUE")
    return key, value


def _describe(field: msgspec.structs.FieldInfo) -> str:
    """One line per key, from the declaration itself."""
    constraint = msgspec.inspect.type_info(field.type)
    schema = msgspec.json.schema(field.type)
    del constraint
    default = field.default
    return f"  {field.encode_name:<24} {schema.get('description', '')} [{default!r}]"
