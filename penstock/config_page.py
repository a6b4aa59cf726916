"""A configuration as people read it: every key, its value, where that is from, what it is for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock import declaration
from penstock.settings import Loaded, Origin

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T", bound=msgspec.Struct)
_DEFAULT = Origin("default", "default")


def show(loaded: Loaded[T], *, as_json: bool, console: Console | None = None) -> None:
    """Print it; as JSON an object of ``value``, ``written``, ``source``, ``where``, ``default``, ``live`` by key."""
    if as_json:
        print(json.dumps(document(loaded), indent=2, ensure_ascii=False))  # noqa: T201
        return
    import sys

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("key", "value", "from", "what it is (*: SIGHUP changes it)"):
        table.add_column(column, overflow="fold")
    for key in declaration.keys(type(loaded.table)):
        origin = loaded.origins.get(key.name, _DEFAULT)
        style = "" if origin is _DEFAULT else "bold"
        said = declaration.written(key.name, getattr(loaded.table, key.name))
        what = f"{key.description}{' *' if key.live else ''}"
        table.add_row(*(Text(each, style=style) for each in (key.name, said, origin.where)), Text(what))
    width = None if sys.stdout.isatty() else 1000  # nothing is broken for who reads it with grep
    (console or Console(highlight=False, width=width)).print(table)


def document(loaded: Loaded[T]) -> dict[str, dict[str, object]]:
    """The same as data."""
    found: dict[str, dict[str, object]] = {}
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
