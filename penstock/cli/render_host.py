"""The agent's status document, for people. Keys may be missing: the agent may be older or newer than this command."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

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
    rate,
    resources,
    stages,
    styled,
    troubles,
)
from penstock.model.units import format_bytes

_STATES = {"running": "green", "paused": "yellow", "warned": "yellow", "stopping": "yellow"}
#: Smaller shares of time are not shown as pressure.
_PRESSED = 0.005
#: The number of unenforced features that are named.
_NAMED = 3


def host_view(status: Mapping[str, Any]) -> RenderableType:
    """Return the whole view: the host, resources, queues, containers, jobs, preemptions."""
    return page(
        _headline(status),
        troubles(status),
        _degraded(status),
        resources(mapping(status, "resources"), [Column("whole host", _whole_host(mapping(status, "host")), rank=2)]),
        _queues(status),
        _containers(status),
        _jobs(status),
        preemptions(
            status,
            Column("container", field("container")),
            Column("what", field("action"), rank=1),
            Column("for", field("resource")),
        ),
    )


def _headline(status: Mapping[str, Any]) -> Text:
    master, host = mapping(status, "master"), mapping(status, "host")
    pieces = [f"{status.get('node', '?')}, penstock {status.get('version', '?')}"]
    if drain := mapping(status, "drain"):
        left = f", {count(drain, 'count')} left" if number(drain, "count") else ""
        pieces.append(f"{drain.get('state', 'draining')} by {drain.get('by', '?')}{left}")
    if "uptime_s" in status:
        pieces.append(f"up {duration(number(status, 'uptime_s'))}")
    if master.get("address"):
        pieces.append(f"master {master['address']} ({'linked' if master.get('linked') else 'not linked'})")
    if host:
        pieces.append(f"host CPU {number(host, 'cpu_percent'):.0f} %")
        used, total = number(host, "memory_used_bytes"), number(host, "memory_total_bytes")
        pieces.append(f"memory {format_bytes(used)} of {format_bytes(total)}")
    return plain(" · ".join(pieces))


def _whole_host(host: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    """Return a cell function: the use of a resource by all processes of the host."""
    if not host:
        return lambda row: ""
    reads, writes = (rate(number(host, f"disk_{what}_bytes_per_s")) for what in ("read", "write"))
    receives, sends = (rate(number(host, f"network_{what}_bytes_per_s")) for what in ("receive", "send"))
    used, total = (format_bytes(number(host, f"memory_{what}_bytes")) for what in ("used", "total"))
    says = {
        "cpu": f"{number(host, 'cpu_percent'):.0f} %",
        "memory": f"{used} of {total}",
        "disk": f"{reads} read, {writes} written",
        "network": f"{receives} in, {sends} out",
    }
    return lambda row: says.get(str(row["resource"]), "")


# ---------------------------------------------------------------- queues


def _queues(status: Mapping[str, Any]) -> Fitted | None:
    names = {str(job.get("job")): job.get("name") for job in listing(status, "jobs")}
    rows = named(status, "kinds", "kind")
    columns = [
        Column("queue", field("kind")),
        Column("slots", lambda row: f"{count(row, 'running') or 0} of {count(row, 'slots') or 0}", right=True),
        Column("", lambda row: bar(number(row, "running") / (number(row, "slots") or 1.0), 5), rank=6),
        Column("promised", lambda row: count(row, "withheld") if row.get("withheld") else "", rank=4, right=True),
        Column("waiting", count_of("queued"), right=True),
        Column("overdue", lambda row: count(row, "overdue") if row.get("overdue") else "", rank=4, right=True),
        Column("passing by", lambda row: count(row, "bypassing") if row.get("bypassing") else "", rank=4, right=True),
        Column("not done", lambda row: format_bytes(number(row, "pending_bytes")), rank=3, right=True),
        Column("rate", lambda row: rate(number(row, "rate_bytes_per_s")), rank=5, right=True),
        Column("at the head", lambda row: _head(row, names), rank=1, wraps=True),
    ]
    return Fitted(columns, rows) if rows else None


def _head(queue: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    head = mapping(queue, "head")
    if not head:
        return ""
    job = str(head.get("job", "?"))
    task = f", task {head['task']}" if head.get("task") else ""
    waits = f"{names.get(job) or job}{task}, waits {duration(number(head, 'waits_s'))}"
    if not (holder := str(head.get("held_by", ""))):
        return waits
    return f"{waits}; {names.get(holder) or holder} has held a slot for {duration(number(head, 'held_s'))}"


# ---------------------------------------------------------------- containers


def _containers(status: Mapping[str, Any]) -> Fitted | None:
    rows = listing(status, "containers")
    now = time.time()
    columns = [
        Column("container", field("container")),
        Column("name", field("name"), rank=2),
        Column("user", field("user"), rank=8),
        Column("class", lambda row: {"opportunistic": "slack"}.get(str(row.get("class")), str(row.get("class", "")))),
        Column("state", _state),
        Column("rank", _place, rank=1, right=True),
        Column("weight", _weight, rank=1, right=True),
        Column("cores", lambda row: _against(row, "cpu_cores", "cores", "cpu_cores"), right=True),
        Column(
            "memory", lambda row: _against(row, "memory_bytes", "bytes", "memory_max_bytes", "memory_high_bytes"),
            right=True,
        ),
        Column("disk", _disk, rank=5, right=True),
        Column("network out, in", _traffic, rank=6),
        Column("pressure", _pressure, rank=4),
        Column("age", lambda row: _age(row, now), rank=7, right=True),
        Column("remarks", _note, rank=3, wraps=True),
    ]  # fmt: skip
    return Fitted(columns, rows) if rows else None


def _state(container: Mapping[str, Any]) -> Text:
    ended = mapping(container, "ended")
    if not ended:
        return styled(container.get("state", ""), _STATES)
    status, by = ended.get("exit_status"), str(ended.get("by", "ended"))
    well = by == "exit" and not status
    number = status - 128 if by == "signal" and isinstance(status, int) else status  # as shells count
    return styled(by if number is None else f"{by} {number}", {}, "dim" if well else "red")


def _against(container: Mapping[str, Any], used: str, unit: str, *limits: str) -> str:
    """Format the use and its limit; for a container with a profile, also the profile's current demand."""
    sample, bounds = mapping(container, "sample"), mapping(container, "limits")
    limit = next((bounds[key] for key in limits if bounds.get(key)), None)
    wants = mapping(mapping(container, "profile"), "wants").get(used)
    if sample.get(used) is None and limit is None:
        return ""
    has = amount(unit, sample[used]) if used in sample else ""
    return f"{has} / {amount(unit, limit)}" + (f" ({amount(unit, wants)})" if wants is not None else "")


def _disk(container: Mapping[str, Any]) -> str:
    sample, limits = mapping(container, "sample"), mapping(container, "limits")
    limit = number(limits, "disk_read_bytes_per_s") or number(limits, "disk_write_bytes_per_s")
    if not limit and not number(sample, "disk_bytes_per_s"):
        return ""
    return f"{rate(number(sample, 'disk_bytes_per_s'))} / {rate(limit) if limit else '–'}"


def _traffic(container: Mapping[str, Any]) -> str:
    sample = mapping(container, "sample")
    out, into = number(sample, "network_send_bytes_per_s"), number(sample, "network_receive_bytes_per_s")
    return f"{rate(out)}, {rate(into)}" if out or into else ""


def _pressure(container: Mapping[str, Any]) -> str:
    """Format shares of time in which processes waited (PSI), or were throttled by ``cpu.max``."""
    sample = mapping(container, "sample")
    kinds = (("cpu", "cpu_stalled"), ("limit", "cpu_throttled"), ("mem", "memory_stalled"), ("disk", "disk_stalled"))
    return ", ".join(f"{name} {percent(share)}" for name, key in kinds if (share := number(sample, key)) >= _PRESSED)


def _age(container: Mapping[str, Any], now: float) -> str:
    if ended := mapping(container, "ended"):
        return duration(number(ended, "wall_seconds"))
    started = number(container, "started_at")
    return duration(max(0.0, now - started)) if started else ""


def _note(container: Mapping[str, Any]) -> str:
    not_enforced = mapping(container, "not_enforced")
    missing = f"not enforced: {', '.join(map(str, not_enforced))}" if not_enforced else ""
    parts = (
        str(container.get("note") or ""),
        _rank(mapping(container, "rank")),
        _executor(mapping(container, "executor")),
        missing,
    )
    return "; ".join(part for part in parts if part)


def _rank(of: Mapping[str, Any]) -> str:
    """Return the reason of its job's rank, if there are several jobs, or tenants with shares."""
    if number(of, "of") < 2 and not of.get("tenant"):
        return ""
    why = f" ({of['why']})" if of.get("why") else ""
    used = duration(number(of, "cpu_s"))
    return f"rank {of.get('rank')} of {of.get('of')}{why}: {used} of CPU so far, queue {of.get('queue')}"


def _place(row: Mapping[str, Any]) -> str:
    """Format the rank of a job, or of a container's job, and the number of ranks."""
    rank = mapping(row, "rank")
    return f"{rank.get('rank')}/{rank.get('of')}" if rank and not row.get("ended") else ""


def _weight(row: Mapping[str, Any]) -> str:
    """Format the ``cpu.weight`` of a ranked container, or the total of a job."""
    return count(mapping(row, "rank"), "weight")


def _executor(of: Mapping[str, Any]) -> str:
    """Return an executor's application, its progress through its profile, and whether it is late."""
    if not of:
        return ""
    parts = [f"executor of {of.get('application', '?')}"]
    if of.get("slots"):
        parts.append(f"slot {number(of, 'slot') + 1:.0f} of {number(of, 'slots'):.0f}")
    if (behind := number(of, "behind")) > 0:
        parts.append(f"its stage takes {behind:.1f} × as long as expected")
    if of.get("stuck"):
        parts.append("its node has no free resources")
    return ", ".join(parts)


# ---------------------------------------------------------------- jobs, unenforced features


def _jobs(status: Mapping[str, Any]) -> Fitted | None:
    rows = listing(status, "jobs")
    columns = [
        Column("job", field("job")),
        Column("name", field("name"), rank=1),
        Column("user", field("user"), rank=4),
        Column("state", lambda row: styled(row.get("state", ""), JOB_STYLES)),
        Column("rank", _place, rank=2, right=True),
        Column("weight", _weight, rank=4, right=True),
        Column("CPU time", lambda row: duration(number(row, "cpu_s")) if row.get("cpu_s") else "", rank=2, right=True),
        Column("waiting", count_of("queued"), right=True),
        *(Column(key, count_of(key), right=True) for key in ("running", "done", "failed")),
        Column("stages", stages, rank=3),
        Column("reason of waiting", field("waits"), rank=2, wraps=True),
    ]
    return Fitted(columns, rows) if rows else None


def _degraded(status: Mapping[str, Any]) -> Text | None:
    facts = mapping(status, "enforcement").items()
    missing = [name for name, fact in facts if isinstance(fact, Mapping) and not fact.get("ok")]
    if not missing:
        return None
    some, more = ", ".join(missing[:_NAMED]), len(missing) - _NAMED
    some += f" and {more} more" if more > 0 else ""
    said = plain(f"not enforced here: {some} (`penstock check` says why)")
    said.stylize("yellow")
    return said
