"""The order of victims, and how many: just enough to cover the needed amount."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from agent.core.preemption.view import View
from agent.core.records import ContainerRecord
from agent.core.settings import VictimOrder
from penstock.model import Choice

_RANK = {Choice.PREFER: 0, Choice.NORMAL: 1, Choice.AVOID: 2}
#: How each order is explained.
RULES = {
    VictimOrder.NEWEST: "newest opportunistic container goes first",
    VictimOrder.LEAST_PROGRESS: "the container that loses the least CPU time goes first",
    VictimOrder.LARGEST: "the container that holds most goes first",
}


def in_order(resource: str, view: View, order: VictimOrder) -> list[ContainerRecord]:
    """Return the candidates, first victim first. Ties go to the newest."""
    keys: dict[VictimOrder, Callable[[ContainerRecord], float]] = {
        VictimOrder.NEWEST: lambda record: 0.0,
        VictimOrder.LEAST_PROGRESS: lambda record: view.use(record).cpu_seconds,
        VictimOrder.LARGEST: lambda record: -view.held(resource, record),
    }
    key = keys[order]
    return sorted(
        view.candidates(resource), key=lambda record: (_RANK[record.spec.preempt], key(record), -record.order)
    )


def cover(
    amount: float, candidates: Sequence[ContainerRecord], held: Callable[[ContainerRecord], float],
    going: Collection[str],
) -> list[ContainerRecord]:  # fmt: skip
    """Return the first candidates that together hold ``amount``, counting those ``going``, skipping empty ones."""
    left = amount - sum(held(record) for record in candidates if record.container in going)
    victims: list[ContainerRecord] = []
    for record in candidates:
        if left <= 0:
            break
        has = held(record)
        if record.container in going or has <= 0:
            continue
        left -= has
        victims.append(record)
    return victims


def dump(resource: str, view: View, candidates: Sequence[ContainerRecord]) -> str:
    """List the candidates and the amounts they hold, for the event log; the first few."""
    unit = {"memory": "B", "cpu": "cores"}.get(resource, "of the device")
    listed = [f"{c.container} {view.held(resource, c):.3g} {unit} ({c.spec.preempt})" for c in candidates[:8]]
    return ", ".join(listed) + (f" and {len(candidates) - 8} more" if len(candidates) > 8 else "")
