"""Print a configuration: every key with its value, the value's source, and its description."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cli.json_output import print_json
from penstock.cli.plain_text import printable
from penstock.config.rendering import DEFAULT
from penstock.wire.config_api import KeyInForce


def show(keys: Mapping[str, KeyInForce], *, as_json: bool) -> None:
    """Print a configuration as JSON, or as a table, in which a key's ``after_restart`` follows its value.

    ``keys`` are those of :func:`penstock.config.rendering.document`.
    """
    if as_json:
        print_json(keys, indent=2)
        return
    import sys

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("key", "value", "from", "what it is (*: changes while the daemon runs)"):
        table.add_column(column, overflow="fold")
    for key, said in keys.items():
        style = "" if said.source == DEFAULT.source else "bold"
        later = f" (after a restart {said.after_restart})" if said.after_restart else ""
        cells = [Text(printable(each), style=style) for each in (key, f"{said.written}{later}", said.where)]
        table.add_row(*cells, Text(f"{said.description}{' *' * said.live}"))
    width = None if sys.stdout.isatty() else 1000  # do not wrap lines for grep and other programs
    Console(highlight=False, width=width, force_terminal=sys.stdout.isatty()).print(table)
