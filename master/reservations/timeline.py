"""PURE. The plan over time, for display: promises by owner, and the free capacity."""

from __future__ import annotations

from itertools import islice

from master.http_documents import Columns
from master.http_documents import Plan as PlanDocument
from master.reservations.plan import Steps, clipped
from master.reservations.reservation_manager import ReservationManager
from penstock.model.resource_vector import ResourceVector
from penstock.wire.reservation_api import FreeRun

#: Largest number of shown stretches of time without a change.
MOST_RUNS = 1000


def stacked(manager: ReservationManager, since: float, until: float, *, by: str = "user") -> PlanDocument:
    """Return the promises from Unix time ``since`` to ``until``, ``by`` "user", or "reservation" for each of them."""
    first, last = manager.step(since), max(manager.step(since) + 1, manager.step(until))
    held: dict[str, Steps] = {}
    for one in manager.agenda.reservations():
        name = one.id if by == "reservation" else manager.entries[one.id].user
        if pieces := clipped(one.pieces, first, last):
            held.setdefault(name, Steps()).put(pieces)
    capacity = manager.agenda.plan.capacity
    changes = {start for steps in (capacity, *held.values()) for start in steps.starts if first < start < last}
    marks = [first, *sorted(changes)]
    if len(marks) > MOST_RUNS:
        marks, last = marks[:MOST_RUNS], marks[MOST_RUNS]
    return PlanDocument(
        step_s=manager.settings.step_s,
        until=manager.unix(last),
        times=[manager.unix(mark) for mark in marks],
        capacity=_columns(capacity, marks),
        promised={name: _columns(steps, marks) for name, steps in sorted(held.items())},
    )


def free_runs(manager: ReservationManager, since: float) -> list[FreeRun]:
    """Return the free capacity from Unix time ``since`` on, run by run; the last run has no ``finish`` (None)."""
    first, found = manager.step(since), list[FreeRun]()
    with manager.without_away():
        runs = list(islice(manager.agenda.plan.free.runs(max(0, first)), MOST_RUNS))
    for start, finish, row in runs:
        end = None if finish is None else manager.unix(finish)
        free = ResourceVector._make(max(0.0, amount) for amount in row)  # negative where absent capacity is promised
        found.append(FreeRun(start=manager.unix(max(start, first)), finish=end, **free._asdict()))
    return found


def _columns(steps: Steps, marks: list[int]) -> Columns:
    cores, disk, network, memory = map(list, zip(*map(steps.at, marks), strict=True))
    return {"cpu_cores": cores, "disk_bytes_per_s": disk, "network_bytes_per_s": network, "memory_bytes": memory}
