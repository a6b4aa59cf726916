"""Jobs, for people: a table, the details of one job, and the explanation of its state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from penstock.cli.plain_text import duration, enumeration
from penstock.cli.render import JOB_STYLES, Column, Fitted, count_of, field, listing, mapping, number, plain, styled
from penstock.model.units import format_bytes
from penstock.wire.jobs_api import MOST_NODES, JobView, NodeRank

#: A smaller amount of work is the default of tasks without a known amount.
_WORTH_TELLING = 1024
#: The number of placed tasks, and of nodes with a rank, that are shown; ``--json`` has more.
_PLACED = 10
_NODES = 10


def table(jobs: Sequence[JobView], now: float, *, users: bool) -> Fitted:
    """Return a table of active jobs, then of ended ones, latest first. ``now`` is Unix time."""
    going = [job for job in jobs if job.ended_at is None]
    over = [job for job in reversed(jobs) if job.ended_at is not None]
    rows = [_row(job, now) for job in going + over]
    columns = [
        Column("job", field("job")),
        Column("name", field("name"), rank=2),
        *([Column("user", field("user"))] if users else []),
        Column("state", lambda row: styled(row["said"], JOB_STYLES)),
        Column("rank", field("of_all"), rank=1, right=True),
        Column("service", field("service"), rank=3, right=True),
        Column("stages", field("of_stages"), rank=6, right=True),
        Column("ready", count_of("tasks_ready"), rank=7, right=True),
        Column("running", count_of("tasks_running"), rank=4, right=True),
        Column("done", lambda row: str(row["tasks_done"] - row["tasks_skipped"]), rank=5, right=True),
        Column("skipped", lambda row: str(row["tasks_skipped"] or ""), rank=5, right=True),
        Column("left", field("work_left"), rank=9, right=True),
        Column("since", field("since"), rank=8, right=True),
        Column("why", field("why"), rank=10, wraps=True),
    ]
    return Fitted(columns, rows, shown=100)


def details(job: JobView, now: float) -> Iterator[RenderableType]:
    """Yield the details of one job: its state with the reason, its stages, its failures."""
    row = _row(job, now)
    head = Text.assemble(plain(job.job), "  ", plain(job.name), f" of {plain(job.user)}: ")
    head.append_text(styled(row["said"], JOB_STYLES))
    head.append(f", {row['when']}")
    yield head
    if job.why:
        yield Text(f"  {plain(job.why)}")
    if job.rank:
        yield Text(f"  rank {job.rank} of {job.of}: {plain(job.reason)}")
    yield from map(_on_node, job.ranks[:_NODES])
    tasks = f"  tasks: {job.tasks_waiting} waiting, {job.tasks_ready} ready, {job.tasks_running} running, "
    failed = f", {job.tasks_failed} of them failed" if job.tasks_failed else ""
    skipped = f", {job.tasks_skipped} skipped" if job.tasks_skipped else ""
    yield Text(f"{tasks}{job.tasks_done - job.tasks_skipped} done{failed}{skipped}")
    slots = f"; holds {job.slots} {'slot' if job.slots == 1 else 'slots'}" if job.slots else ""
    yield Text(f"  service: {row['service']} so far{slots}" if job.ended_at is None else f"  service: {row['service']}")
    if row["work_left"]:
        yield Text(f"  left: {row['work_left']}")
    if nodes := job.nodes or job.ran_on:
        named = enumeration(nodes, cut=len(nodes) >= MOST_NODES)
        yield Text(f"  {'on' if job.nodes else 'ran on'} {named}; registered on {plain(job.origin)}")
    stages = [msgspec.structs.asdict(stage) for stage in job.progress]
    columns = [
        Column("stage", field("stage")),
        Column("tasks", count_of("tasks"), right=True),
        Column("done", lambda row: str(row["done"] - row["skipped"]), right=True),
        Column("skipped", lambda row: str(row["skipped"] or ""), rank=1, right=True),
        Column("after", lambda row: ", ".join(row["after"]), rank=2, wraps=True),
    ]
    if stages:
        yield Fitted(columns, stages)
    for failure in job.failures:
        place = f" on {failure.node}" if failure.node else ""
        yield Text(f"  {plain(failure.task)} failed{plain(place)}: {plain(failure.how)}", style="red")


def explanation(said: Mapping[str, Any]) -> Iterator[Text]:
    """Yield the master's explanation of one job, line by line."""
    if said.get("ended") is not None:
        over = mapping(said, "ended")
        why = f": {over.get('why')}" if over.get("why") else ""
        yield plain(f"{said.get('job')} {said.get('name')} has ended, {over.get('outcome')}{why}")
        return
    yield plain(f"{said.get('job')} {said.get('name')}")
    if said.get("cancelled_by"):
        yield plain(f"  cancelled by {said['cancelled_by']}; its host has not confirmed it yet")
    yield plain(f"  {said.get('sentence')}")
    yield from map(_on_node, listing(said, "ranks")[:_NODES])
    if not said.get("admitted"):
        yield plain(f"  not admitted: {said.get('waits') or 'not looked at before the next round'}")
    elif said.get("waits"):
        yield plain(f"  waits: {said['waits']}")
    room = said.get("room_containers")
    containers = said.get("containers")
    held = f"  holds {containers} {'container' if containers == 1 else 'containers'}"
    yield plain(held + ("" if room is None else f", and may hold {room:g}"))
    for stage in listing(said, "stages"):
        yield plain(f"  stage {stage.get('stage')}: {stage.get('ready')} ready; {stage.get('waits')}")
    placed = mapping(said, "placed")
    if placed:
        yield plain(f"  placed ({said.get('placement')}): " + ", ".join(f"{n} on {node}" for node, n in placed.items()))
    for task in listing(said, "last_placed")[-_PLACED:]:
        slack = ", on slack" if task.get("opportunistic") else ""
        yield plain(f"    {task.get('task')} → {task.get('node')}{slack}: {task.get('why') or 'before a restart'}")


def _on_node(at: NodeRank | Mapping[str, Any]) -> Text:
    """Return a line about a job's rank on a node."""
    row = at if isinstance(at, Mapping) else msgspec.structs.asdict(at)
    rank = f"rank {row.get('rank')} of {row.get('of')}, weight {row.get('weight')}"
    received = duration(number(row, "service_container_s"))
    return plain(f"  on {row.get('node')}: {rank}, {received} of service there")


def _row(job: JobView, now: float) -> dict[str, Any]:
    left = [
        f"{format_bytes(amount)} {kind}"
        for kind, amount in (("cpu", job.left.cpu), ("disk", job.left.disk), ("network", job.left.network))
        if amount >= _WORTH_TELLING and job.ended_at is None
    ]
    since = now - (job.submitted_at if job.ended_at is None else job.ended_at)
    ago = duration(max(0.0, since))
    return {
        **msgspec.structs.asdict(job),
        "said": job.outcome if job.state == "ended" else job.state,
        "of_stages": f"{job.stages_done}/{job.stages}" if job.stages else "",
        "of_all": f"{job.rank}/{job.of}" if job.rank else "",
        "service": duration(job.service_container_s),
        "work_left": ", ".join(left),
        "since": ago if job.ended_at is None else f"{ago} ago",
        "when": f"submitted {ago} ago" if job.ended_at is None else f"ended {ago} ago",
    }
