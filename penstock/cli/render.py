"""The status document as tables. Keys may be missing: an older or newer agent is shown as far as it goes."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.model.units import format_bytes

_UNLIMITED = "–"
_KINDS = ("cpu", "disk", "network")
#: How many of each list are shown: a screen, not a log.
_SHOWN = 20


def console() -> Console:
    """Standard output; wide enough for every column when nobody looks at it through a terminal."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)


def plain(value: object) -> Text:
    """Text from elsewhere, without markup and without anything that could steer a terminal."""
    return Text("".join(c if c.isprintable() else "�" for c in str(value)))


def status_view(status: Mapping[str, Any]) -> RenderableType:
    """Everything: the host, resources, jobs, containers, preemptions."""
    parts: list[RenderableType] = [_headline(status), _resources(status)]
    if (memory := _memory(status)) is not None:
        parts.append(memory)
    for part in (_jobs(status), _containers(status), _preemptions(status), _degraded(status)):
        if part is not None:
            parts += [Text(), part]
    return Group(*parts)


def _headline(status: Mapping[str, Any]) -> Text:
    host = _map(status, "host")
    master = _map(status, "master")
    pieces = [f"{status.get('node', '?')}, penstock {status.get('version', '?')}"]
    if "uptime_s" in status:
        pieces.append(f"up {duration(_number(status, 'uptime_s'))}")
    if master.get("address"):
        pieces.append(f"master {master['address']} ({'linked' if master.get('linked') else 'not linked'})")
    if host:
        pieces.append(f"host CPU {_number(host, 'cpu_percent'):.0f} %")
        used, total = _number(host, "memory_used_bytes"), _number(host, "memory_total_bytes")
        pieces.append(f"memory {format_bytes(used)} of {format_bytes(total)}")
    return plain(" · ".join(pieces))


def _resources(status: Mapping[str, Any]) -> Table:
    table = _table("resource", "slots", "running", "queued", "bypassing", "rate", "pending", "host")
    kinds = _map(status, "kinds")
    for kind in _KINDS:
        if isinstance(at := kinds.get(kind), Mapping):
            table.add_row(
                kind,
                _count(at, "slots"),
                _count(at, "running"),
                _count(at, "queued"),
                _count(at, "bypassing"),
                f"{format_bytes(_number(at, 'rate_bytes_per_s'))}/s",
                format_bytes(_number(at, "pending_bytes")),
                _host_use(kind, _map(status, "host")),
            )
    return table


def _memory(status: Mapping[str, Any]) -> Text | None:
    memory = _map(status, "memory")
    if not memory:
        return None
    capacity, *parts = (
        format_bytes(_number(memory, f"{key}_bytes")) for key in ("capacity", "promised", "opportunistic", "used")
    )
    promised, opportunistic, used = parts
    return plain(f"memory {capacity}: {promised} promised, {opportunistic} opportunistic, {used} used by containers")


def _host_use(kind: str, host: Mapping[str, Any]) -> str:
    if not host:
        return ""
    if kind == "cpu":
        return f"{_number(host, 'cpu_percent'):.0f} %"
    one, other = (
        ("disk_read_bytes_per_s", "disk_write_bytes_per_s")
        if kind == "disk"
        else ("network_receive_bytes_per_s", "network_send_bytes_per_s")
    )
    verbs = ("read", "written") if kind == "disk" else ("in", "out")
    return f"{format_bytes(_number(host, one))}/s {verbs[0]}, {format_bytes(_number(host, other))}/s {verbs[1]}"


def _jobs(status: Mapping[str, Any]) -> Table | None:
    table = _table("job", "name", "user", "admitted", "priority", "queued", "running", "done", "failed")
    jobs = _list(status, "jobs")
    for job in jobs[:_SHOWN]:
        table.add_row(
            plain(job.get("job", "")),
            plain(job.get("name", "")),
            plain(job.get("user", "")),
            "yes" if job.get("admitted") else "waits",
            f"{_number(job, 'priority'):g}",
            *(_count(job, key) for key in ("queued", "running", "done", "failed")),
        )
    return _more(table, jobs)


def _containers(status: Mapping[str, Any]) -> Table | None:
    table = _table("container", "name", "user", "class", "state", "cores", "memory", "disk", "age", "note")
    containers = _list(status, "containers")
    for one in containers[:_SHOWN]:
        limits, use, ended = _map(one, "limits"), _map(one, "sample"), _map(one, "ended")
        memory_limit = limits.get("memory_max_bytes") or limits.get("memory_high_bytes")
        disk_limit = limits.get("disk_read_bytes_per_s") or limits.get("disk_write_bytes_per_s")
        started = one.get("started_at")
        age = time.time() - started if isinstance(started, int | float) and started and not ended else 0.0
        table.add_row(
            plain(one.get("container", "")),
            plain(one.get("name", "")),
            plain(one.get("user", "")),
            plain(one.get("class", "")),
            plain(_state(one, ended)),
            _of(use.get("cpu_cores"), limits.get("cpu_cores"), lambda n: f"{n:.2g}"),
            _of(use.get("memory_bytes"), memory_limit, format_bytes),
            _of(use.get("disk_bytes_per_s"), disk_limit, lambda n: f"{format_bytes(n)}/s"),
            duration(_number(ended, "wall_seconds") if ended else age),
            plain(_note(one)),
        )
    return _more(table, containers)


def _state(container: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    if not ended:
        return str(container.get("state", ""))
    status = ended.get("exit_status")
    by = str(ended.get("by", "ended"))
    return by if status is None else f"{by} {status}"


def _note(container: Mapping[str, Any]) -> str:
    not_enforced = _map(container, "not_enforced")
    missing = f"not enforced: {', '.join(map(str, not_enforced))}" if not_enforced else ""
    parts = (str(container.get("note") or ""), _executor(_map(container, "executor")), missing)
    return "; ".join(part for part in parts if part)


def _executor(of: Mapping[str, Any]) -> str:
    """Whose it is, how far it is in what it was expected to do, and whether it is late."""
    if not of:
        return ""
    parts = [f"executor of {of.get('application', '?')}"]
    if of.get("slots"):
        parts.append(f"slot {_number(of, 'slot') + 1:.0f} of {_number(of, 'slots'):.0f}")
    if (behind := _number(of, "behind")) > 0:
        parts.append(f"its stage takes {behind:.1f} × as long as expected")
    if of.get("stuck"):
        parts.append("nothing is left to give it")
    return ", ".join(parts)


def _preemptions(status: Mapping[str, Any]) -> Table | None:
    table = _table("preempted", "container", "for", "reason")
    recent = list(reversed(_list(status, "preemptions")))
    for one in recent[:_SHOWN]:
        table.add_row(_clock(one.get("at")), *(plain(one.get(key, "")) for key in ("container", "resource", "reason")))
    return _more(table, recent)


def _degraded(status: Mapping[str, Any]) -> Text | None:
    missing = [
        name for name, fact in _map(status, "enforcement").items() if isinstance(fact, Mapping) and not fact.get("ok")
    ]
    if not missing:
        return None
    return plain(f"not enforced here: {', '.join(missing)} (`penstock check` says why, and what helps)")


# ---------------------------------------------------------------- small parts


def duration(seconds: float) -> str:
    """``93.4`` → ``1m33s``."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 24 else f"{hours // 24}d{hours % 24:02d}h"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _more(table: Table, rows: list[Any]) -> Table | None:
    if len(rows) > _SHOWN:
        table.add_row(f"… {len(rows) - _SHOWN} more", *[""] * (len(table.columns) - 1))
    return table if rows else None


def _of(use: object, limit: object, show: Any) -> str:
    used = show(use) if isinstance(use, int | float) else ""
    return f"{used} / {show(limit) if isinstance(limit, int | float) else _UNLIMITED}" if used or limit else ""


def _clock(at: object) -> str:
    try:
        return time.strftime("%H:%M:%S", time.localtime(at)) if isinstance(at, int | float) else ""
    except (OverflowError, ValueError, OSError):
        return "?"


def _map(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(of: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = of.get(key)
    entries: Iterable[Any] = value if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _number(of: Mapping[str, Any], key: str) -> float:
    value = of.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def _count(of: Mapping[str, Any], key: str) -> str:
    return f"{_number(of, key):.0f}" if key in of else ""
