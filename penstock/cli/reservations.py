"""``penstock reservations``: what is promised to whom, and giving it back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.cli import arguments

if TYPE_CHECKING:
    from penstock.wire.reservation_api import PromisedPiece, Reserved

#: So many pieces of each are shown; ``--json`` has all.
_SHOWN = 5


def main(argv: list[str]) -> int:
    """The command."""
    parser = arguments.Parser("reservations", "What the cluster has promised you ahead of time.")
    parser.add_argument("--all", action="store_true", help="everybody's (for operators)")
    parser.add_argument("--delete", metavar="ID", action="append", default=[], help="give one back")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    options = parser.parse_args(argv)
    from penstock.cli.session import converse  # asyncio and all: not for --help

    return converse(_reservations(options.delete, everybody=options.all, as_json=options.json))


async def _reservations(delete: Sequence[str], *, everybody: bool, as_json: bool) -> int:
    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock reservations") as agent:
        for one in delete:
            await agent.delete_reservation(one)
        found = await agent.reservations(everybody=everybody)
    show(found, as_json=as_json)
    return 0


def show(reservations: Sequence[Reserved], *, as_json: bool) -> None:
    """As JSON, or as a table for people."""
    if as_json:
        import msgspec

        print(msgspec.json.encode(reservations).decode())
        return
    from rich.table import Table
    from rich.text import Text

    from penstock.cli.render import console, plain

    if not reservations:
        print("nothing is reserved")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("reservation", "name", "user", "promised"):
        table.add_column(column)
    for one in reservations:
        lines = [_piece(piece) for piece in one.promised[:_SHOWN]]
        if len(one.promised) > _SHOWN:
            lines.append(f"… {len(one.promised) - _SHOWN} more")
        promised = Text("\n".join(lines)) if not one.dropped else plain(f"dropped: {one.dropped}")
        table.add_row(plain(one.reservation), plain(one.name), plain(one.user), promised)
    console().print(table)


def _piece(piece: PromisedPiece) -> str:
    from penstock.model.units import format_bytes

    amounts = [f"{piece.cpu_cores:g} cores"] if piece.cpu_cores else []
    amounts += [format_bytes(piece.memory_bytes)] if piece.memory_bytes else []
    for kind, rate in (("disk", piece.disk_bytes_per_s), ("network", piece.network_bytes_per_s)):
        amounts += [f"{format_bytes(rate)}/s {kind}"] if rate else []
    return f"{_moment(piece.start)} to {_moment(piece.finish)}  {piece.bundles} × {', '.join(amounts)}"


def _moment(at: float) -> str:
    """In local time; today without the date."""
    then, today = datetime.fromtimestamp(at).astimezone(), datetime.fromtimestamp(time.time()).astimezone()
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S")
