"""Print a configuration: every key with its value, the value's source, and its description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from penstock.config import declaration
from penstock.config.settings import Loaded, Origin
from penstock.wire.config_api import KeyInForce

T = TypeVar("T", bound=msgspec.Struct)
_DEFAULT = Origin("default", "default")


def show(keys: Mapping[str, KeyInForce], *, as_json: bool) -> None:
    """Print the result of :func:`document` as JSON, or as a table; a key's ``after_restart`` follows its value."""
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(keys), indent=2).decode())  # noqa: T201
        return
    import sys

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("key", "value", "from", "what it is (*: changes while the daemon runs)"):
        table.add_column(column, overflow="fold")
    for key, said in keys.items():
        style = "" if said.source == _DEFAULT.source else "bold"
        later = f" (after a restart {said.after_restart})" if said.after_restart else ""
        cells = (key, f"{said.written}{later}", said.where)
        table.add_row(*(Text(each, style=style) for each in cells), Text(f"{said.description}{' *' * said.live}"))
    width = None if sys.stdout.isatty() else 1000  # do not wrap lines for grep and other programs
    Console(highlight=False, width=width, force_terminal=sys.stdout.isatty()).print(table)


def document(loaded: Loaded[T], later: Mapping[str, str]) -> dict[str, KeyInForce]:
    """Return all keys in the order of their declaration; ``later`` are the values after a restart that differ."""
    found: dict[str, KeyInForce] = {}
    for key in declaration.keys(type(loaded.table)):
        origin, value = loaded.origins.get(key.name, _DEFAULT), getattr(loaded.table, key.name)
        found[key.name] = KeyInForce(
            value=msgspec.to_builtins(value),
            written=declaration.written(key.name, value),
            source=origin.source,
            where=origin.where,
            default=key.default,
            live=key.live,
            description=key.description,
            after_restart=later.get(key.name, ""),
        )
    return found
