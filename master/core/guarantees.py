"""The plan's present promises (Rayon §5.2), beside the resources that the reservations' jobs hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from master.core.job import Job
from master.core.membership import Membership
from master.core.node import Node
from master.ordering import Guarantee
from penstock.model.resource_vector import SlotVector


@dataclass(frozen=True, slots=True)
class Promised:
    """A reservation's present promise: cores and bytes of memory, in ``bundles`` bundles.

    The plan also counts disks and network, but tasks have slots of those, and no rates that could be guaranteed.
    """

    cores: float
    memory_bytes: float
    bundles: int


class Plan(Protocol):
    """Access to the reservations."""

    def promised(self, at: float) -> Mapping[str, Promised]:
        """Return reservation → its promise at Unix time ``at``; a reservation without a promise then is left out."""
        ...

    def later(self, at: float) -> Collection[str]:
        """Return the reservations with a promise that begins after Unix time ``at``."""
        ...

    def saw(self, at: float, waiting: Collection[str]) -> None:
        """Note, after each round (Unix time), the reservations that lack part of their promise and have ready tasks."""


class NothingPromised:
    """The plan of a cluster without reservations."""

    def promised(self, at: float) -> Mapping[str, Promised]:
        """Return no promise."""
        return {}

    def later(self, at: float) -> Collection[str]:
        """Return no promise."""
        return ()

    def saw(self, at: float, waiting: Collection[str]) -> None:
        """Ignore the report."""


class Guarantees:
    """Compares the present promises with the holdings of the reservations' jobs."""

    def __init__(self, members: Membership) -> None:
        self.plan: Plan = NothingPromised()
        self._members = members

    def of(self, at: float) -> tuple[dict[str, str], dict[str, Guarantee]]:
        """Return job → its reservation, and reservation → the present promise to its jobs together, with
        the resources that they hold.

        ``at`` is Unix time. Reservations without jobs, or without a present promise, are left out, and so are the
        jobs of a reservation without further promises: they are like jobs without one.
        """
        members = {job.job: job.reservation for job in self._members.jobs.values() if job.reservation}
        if not members:
            return {}, {}
        promised, later = self.plan.promised(at), self.plan.later(at)
        members = {job: one for job, one in members.items() if one in promised or one in later}
        found = {
            reservation: Guarantee(SlotVector(one.cores, memory_bytes=one.memory_bytes), [0.0] * 4, one.bundles)
            for reservation in dict.fromkeys(members.values())
            if (one := promised.get(reservation)) is not None
        }
        for name, reservation in members.items():
            if reservation in found:
                found[reservation].take(held_by(self._members.nodes, self._members.jobs[name]))
        return members, found

    def reserved_cores(self, at: float) -> Callable[[str, str], float | None]:
        """Return a function of a job and a node: the cores there that the job's reservation promises it at Unix time
        ``at``.

        A reservation's cores are divided among its jobs by the cores that they hold, up to those. 0: the job's time has
        not come. None: the job has no reservation of cores, its time is over, or it holds nothing there.
        """
        members, found = self.of(at)
        held: dict[str, dict[str, float]] = {}
        for name, reservation in members.items():
            guarantee = found.get(reservation)
            if guarantee is not None and guarantee.promised[0] and guarantee.held[0]:
                part = min(1.0, guarantee.promised[0] / guarantee.held[0])
                cores = self._cores_by_node(self._members.jobs[name])
                held[name] = {node: round(part * each, 3) for node, each in cores.items()}

        def cores_of(job: str, node: str) -> float | None:
            return 0.0 if job in members and members[job] not in found else held.get(job, {}).get(node)

        return cores_of

    def _cores_by_node(self, job: Job) -> dict[str, float]:
        """Return node → the cores of its tasks there; for a framework that schedules its own tasks, its slots."""
        if not job.tasks:
            return {node: float(use.running) for node, use in job.work.seen.items()}
        cores: dict[str, float] = {}
        for task in job.tasks.values():
            held = self._members.held_of(task)
            if held is not None and held.regular:
                cores[task.node] = cores.get(task.node, 0.0) + held.holds().cores
        return cores


def held_by(nodes: Mapping[str, Node], job: Job, *, opportunistic: bool = False) -> SlotVector:
    """Return the holdings of its placed tasks; for a framework that schedules its own tasks, its slots as cores."""
    total = [0.0, 0.0, 0.0, 0.0]
    for task in job.tasks.values():
        node = nodes.get(task.node) if task.node else None
        held = node.held.get((job.job, task.name)) if node is not None else None
        if held is not None and held.regular is not opportunistic:
            for resource, amount in enumerate(held.holds()):
                total[resource] += amount
    if not job.tasks:
        total[0] = float(job.work.slots)
    return SlotVector._make(total)
