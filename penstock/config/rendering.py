"""Print a configuration: every key with its value, the value's source, and its description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from penstock.config import declaration
from penstock.config.settings import Loaded, Origin

T = TypeVar("T", bound=msgspec.Struct)
_DEFAULT = Origin("default", "default")


def show(keys: Mapping[str, Mapping[str, Any]], *, as_json: bool) -> None:
    """Print the result of :func:`document` as JSON, or as a table; a key's ``after_restart`` follows its value."""
    if as_json:
        print(json.dumps(keys, indent=2, ensure_ascii=False))  # noqa: T201
        return
    import sys

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("key", "value", "from", "what it is (*: changes while the daemon runs)"):
        table.add_column(column, overflow="fold")
    for key, said in keys.items():
        style = "" if said["source"] == _DEFAULT.source else "bold"
        later = f" (after a restart {said['after_restart']})" if said.get("after_restart") else ""
        what = f"{said['description']}{' *' if said['live'] else ''}"
        table.add_row(
            *(Text(each, style=style) for each in (key, f"{said['written']}{later}", said["where"])), Text(what)
        )
    width = None if sys.stdout.isatty() else 1000  # do not wrap lines for grep and other programs
    Console(highlight=False, width=width, force_terminal=sys.stdout.isatty()).print(table)


def document(loaded: Loaded[T]) -> dict[str, dict[str, Any]]:
    """Return key → ``value``, ``written``, ``source``, ``where``, ``default``, ``live``, ``description``."""
    found: dict[str, dict[str, Any]] = {}
    for key in declaration.keys(type(loaded.table)):
        origin, value = loaded.origins.get(key.name, _DEFAULT), getattr(loaded.table, key.name)
        found[key.name] = {
            "value": msgspec.to_builtins(value),
            "written": declaration.written(key.name, value),
            "source": origin.source,
            "where": origin.where,
            "default": key.default,
            "live": key.live,
            "description": key.description,
        }
    return found
