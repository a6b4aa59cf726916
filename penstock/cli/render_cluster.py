"""The master's status document and reservations, for people."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from penstock.cli.plain_text import duration
from penstock.cli.render import (
    JOB_STYLES,
    Column,
    Fitted,
    amount,
    bar,
    count,
    count_of,
    field,
    listing,
    mapping,
    named,
    number,
    page,
    percent,
    plain,
    preemptions,
    resources,
    stages,
    styled,
    troubles,
)
from penstock.model.units import counted, format_bytes

if TYPE_CHECKING:
    from penstock.wire.reservation_api import Reserved

_STATES = {"connected": "green", "away": "red", "expected": "yellow", "draining": "yellow", "drained": "yellow"}


def cluster_view(
    status: Mapping[str, Any], reservations: Sequence[Reserved] = (), now: float | None = None
) -> RenderableType:
    """Return the whole view: sums, nodes, jobs, reservations, preemptions. ``now`` is Unix time (None: the clock's)."""
    at = time.time() if now is None else now
    return page(
        _headline(status, at),
        troubles(status),
        resources(mapping(status, "resources")),
        _nodes(status),
        _jobs(status),
        _others(status),
        _reservations(reservations, at),
        preemptions(
            status,
            Column("node", field("node")),
            Column("task", field("task")),
            Column("job", field("job"), rank=1),
        ),
    )


def _headline(status: Mapping[str, Any], now: float) -> Text:
    nodes = named(status, "nodes", "node")
    connected = sum(1 for node in nodes if str(node.get("state")) not in {"away", "expected"})
    tasks, memory = mapping(status, "tasks"), mapping(status, "memory")
    known = counted(len(nodes) + round(number(mapping(status, "more"), "nodes")), "node")
    pieces = [f"{connected} of {known} connected"]
    if "version" in status:
        pieces.append(f"master {status['version']}")
    if "started_at" in status:
        pieces.append(f"up {duration(max(0.0, now - number(status, 'started_at')))}")
    pieces.append(f"tasks {number(tasks, 'placed'):.0f} placed, {number(tasks, 'ready'):.0f} ready")
    if memory:
        reserved, reservable = number(memory, "reserved_bytes"), number(memory, "reservable_bytes")
        pieces.append(f"memory {format_bytes(reserved)} of {format_bytes(reservable)} reserved")
    if "ordering" in status:
        pieces.append(f"order {status['ordering']}")
    if models := [name for name, why_not in mapping(status, "models").items() if not why_not]:
        pieces.append(f"forecasts by {', '.join(models)}")
    return plain(" · ".join(pieces))


# ---------------------------------------------------------------- nodes, jobs


def _nodes(status: Mapping[str, Any]) -> Fitted | None:
    rows = sorted(named(status, "nodes", "node"), key=lambda row: str(row["node"]))
    columns = [
        Column("node", field("node")),
        Column("state", _node_state),
        Column("cores", lambda row: _room(row, "cores", "used_cores"), right=True),
        Column("", lambda row: _bar(row, "cores", "used_cores"), rank=6),
        Column("memory", lambda row: _room(row, "memory_bytes", "used_memory_bytes"), right=True),
        Column("", lambda row: _bar(row, "memory_bytes", "used_memory_bytes"), rank=7),
        Column("promised", _promised, rank=5, right=True),
        Column("disk", lambda row: _share(row, "disk_busy"), rank=2, right=True),
        Column("net", lambda row: _share(row, "network_busy"), rank=3, right=True),
        Column("not done", _pending, rank=4, right=True),
        Column("tasks", count_of("tasks"), right=True),
        Column("slack", count_of("opportunistic_tasks"), rank=1, right=True),
    ]
    return Fitted(columns, rows, shown=1000) if rows else None


def _node_state(node: Mapping[str, Any]) -> Text:
    state = str(node.get("state", ""))
    said = f"{state} {duration(number(node, 'away_s'))}" if state == "away" else state
    return styled(said, {said: _STATES.get(state, "")})


def _room(node: Mapping[str, Any], there: str, used: str) -> str:
    unit = "cores" if there == "cores" else "bytes"
    has, uses = mapping(node, "capacity").get(there), mapping(node, "load").get(used, 0)
    return f"{amount(unit, uses)} / {amount(unit, has)}"


def _bar(node: Mapping[str, Any], there: str, used: str) -> Text:
    return bar(number(mapping(node, "load"), used) / (number(mapping(node, "capacity"), there) or 1.0), 5)


def _promised(node: Mapping[str, Any]) -> str:
    load = mapping(node, "load")
    cores = amount("cores", number(load, "promised_cores"))
    return f"{cores}, {format_bytes(number(load, 'promised_memory_bytes'))}"


def _share(node: Mapping[str, Any], key: str) -> str:
    return percent(number(mapping(node, "load"), key))


def _pending(node: Mapping[str, Any]) -> str:
    pending = mapping(mapping(node, "load"), "pending")
    return format_bytes(sum(number(pending, kind) for kind in ("cpu", "disk", "network")))


def _jobs(status: Mapping[str, Any]) -> Fitted | None:
    """Return the jobs in their order; jobs without a rank come last."""
    rows = sorted(named(status, "jobs", "job"), key=lambda row: number(row, "rank") or math.inf)
    columns = [
        Column("job", field("job")),
        Column("name", field("name"), rank=1),
        Column("user", field("user"), rank=3),
        Column("state", lambda row: styled(row.get("state", ""), JOB_STYLES)),
        Column("rank", lambda row: count(row, "rank") if row.get("rank") else "", rank=1, right=True),
        Column("service", lambda row: duration(number(row, "service_container_s")), rank=2, right=True),
        Column("placed", count_of("placed"), right=True),
        Column("ready", count_of("ready"), right=True),
        Column("", _progress, rank=6),
        Column("done", lambda row: stages(row, "progress"), rank=2),
        Column("reason of the rank", field("reason"), rank=5, wraps=True),
        Column("reason of waiting", field("waits"), rank=4, wraps=True),
    ]
    return Fitted(columns, rows) if rows else None


def _progress(job: Mapping[str, Any]) -> Text:
    told = listing(job, "progress")
    tasks = sum(number(stage, "tasks") for stage in told)
    return Text(bar(sum(number(stage, "done") for stage in told) / tasks).plain, style="green") if tasks else Text()


def _others(status: Mapping[str, Any]) -> Text | None:
    """Return the numbers of entries that the agent left out of the document."""
    more = mapping(status, "more")
    parts = [
        f"{number(more, key):.0f} {what}"
        for key, what in (("nodes", "nodes"), ("jobs", "jobs"), ("jobs_of_others", "jobs of other users"))
        if number(more, key)
    ]
    return Text(f"… and {', '.join(parts)}", style="dim") if parts else None


# ---------------------------------------------------------------- reservations


def _reservations(reservations: Sequence[Reserved], now: float) -> Fitted | None:
    """Return each reservation's current or next piece, earliest first; and dropped reservations."""
    rows: list[dict[str, Any]] = []
    for one in reservations:
        piece = next((piece for piece in one.promised if piece.finish > now), None)
        if piece is None and not one.dropped:
            continue
        row: dict[str, Any] = {"reservation": one.reservation, "name": one.name, "user": one.user, "at": 0.0}
        if piece is None:
            row |= {"due": "dropped", "promised": one.dropped}
        else:
            until = duration(piece.finish - max(now, piece.start))
            row |= {
                "at": piece.start,
                "due": f"now, for {until}" if piece.start <= now else f"in {duration(piece.start - now)}, for {until}",
                "promised": f"{piece.bundles} × {counted(piece.cpu_cores, 'core')}, {format_bytes(piece.memory_bytes)}",
            }
        rows.append(row)
    rows.sort(key=lambda row: float(row["at"]))
    columns = [
        Column("reservation", field("reservation")),
        Column("name", field("name"), rank=1),
        Column("user", field("user"), rank=2),
        Column("due", field("due")),
        Column("promised", field("promised"), wraps=True),
    ]
    return Fitted(columns, rows) if rows else None
