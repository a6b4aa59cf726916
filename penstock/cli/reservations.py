"""``penstock reservations``: list and delete reservations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from penstock.cli import arguments, lean_imports
from penstock.cli.errors import usage_error
from penstock.cli.json_output import print_json
from penstock.cli.local_times import moment, with_local_times
from penstock.cli.session import asked
from penstock.model.units import counted, format_bytes, parse_duration_s
from penstock.wire.reservation_api import FreeRun, PromisedPiece, Reservations, Reserved

if TYPE_CHECKING:
    from penstock.client.blocking_requests import BlockingRequests

#: The number of pieces shown of each reservation; ``--json`` has 100.
_SHOWN = 5


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser("reservations", "List your reservations of the cluster's resources.")
    parser.add_argument("--all", action="store_true", help="reservations of all users (operators only)")
    parser.add_argument(
        "--at", metavar="TIME", help="allocations and free capacity then: now, +2h, an ISO 8601 or a Unix time"
    )
    parser.add_argument(
        "--delete",
        type=arguments.listed_id,
        metavar="ID",
        action="append",
        default=[],
        help="delete a reservation; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    options = parser.parse_args(argv)
    at = None if options.at is None else _time(options.at)

    async def reservations(agent: BlockingRequests) -> Reservations:
        for one in options.delete:
            await agent.delete_reservation(one)
        if at is None:
            return Reservations(reservations=await agent.reservations(everybody=options.all))
        return await agent.reservations_at(at, everybody=options.all)

    found = asked("reservations", reservations, named="reservation")
    if at is None:
        show(found.reservations, as_json=options.json)
    else:
        show_then(found, at, as_json=options.json)
    return 0


def _time(said: str) -> float:
    """Parse a Unix time.

    Raises:
        CommandError: it is not a time.
    """
    try:
        if said == "now":
            return time.time()
        if said.startswith("+"):
            return time.time() + parse_duration_s(said[1:])
        if "-" not in said:
            return float(said)
        return datetime.fromisoformat(said).timestamp()  # local time unless it has an offset
    except ValueError:
        remedy = "write now, +90s or +2h, 2026-12-24T06:00, or seconds of Unix time"
        raise usage_error(f"--at: {said[:80]!r} is no time; {remedy}") from None


def show_then(found: Reservations, at: float, *, as_json: bool) -> None:
    """Print the allocations at a time, and the free capacity from then on."""
    if as_json:
        print_json(found)
        return
    if found.reservations:
        now = [[piece for piece in one.promised if piece.start <= at < piece.finish] for one in found.reservations]
        show(
            [
                msgspec.structs.replace(one, promised=pieces, more=0)
                for one, pieces in zip(found.reservations, now, strict=True)
            ],
            as_json=False,
        )
    else:
        print("no allocation at that time")
    for run in found.free[:_SHOWN]:
        until = "from then on" if run.finish is None else f"to {moment(run.finish)}"
        print(f"free  {moment(run.start)} {until}  {_amounts(run)}")
    if len(found.free) > _SHOWN:
        print(f"… {len(found.free) - _SHOWN} more; --json has all")


def show(reservations: Sequence[Reserved], *, as_json: bool) -> None:
    """Print reservations as JSON, or as a table for people."""
    if as_json:
        print_json(reservations)
        return
    if not reservations:
        print("nothing is reserved")
        return
    lean_imports.load("rich")
    from rich.text import Text

    from penstock.cli.render import console, plain, table

    shown = table("reservation", "name", "user", "promised")
    for one in reservations:
        lines = [
            f"{moment(piece.start)} to {moment(piece.finish)}  {piece.bundles} × {_amounts(piece)}"
            for piece in one.promised[:_SHOWN]
        ]
        if (more := one.more + max(0, len(one.promised) - _SHOWN)) > 0:
            lines.append(f"… {more} more")
        promised = Text("\n".join(lines)) if not one.dropped else plain(f"dropped: {with_local_times(one.dropped)}")
        if one.launch_delay_s and not one.dropped:
            promised.append(
                f"\nresources are freed {one.launch_delay_s:.1f} s before, the placement delay of such bundles"
            )
        shown.add_row(plain(one.reservation), plain(one.name), plain(one.user), promised)
    console().print(shown)


def _amounts(of: PromisedPiece | FreeRun) -> str:
    amounts = [counted(of.cpu_cores, "core")] if of.cpu_cores else []
    amounts += [format_bytes(int(of.memory_bytes))] if of.memory_bytes else []
    for kind, rate in (("disk", of.disk_bytes_per_s), ("network", of.network_bytes_per_s)):
        amounts += [f"{format_bytes(int(rate))}/s {kind}"] if rate else []
    return ", ".join(amounts) or "nothing"
