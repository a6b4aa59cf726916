"""The input of an ordering: one frozen view of the jobs and the cluster per round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Amounts per resource: cores, disk slots, network slots, bytes of memory (or, where noted, seconds of work per kind).
Amounts = Sequence[float]


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage: its known and its finished tasks, and the container-seconds it has received."""

    name: str
    tasks: int
    done: int
    service: float = 0.0

    @property
    def progress(self) -> float:
        """Return the finished fraction of its tasks, 0 to 1."""
        return self.done / self.tasks if self.tasks else 0.0


@dataclass(frozen=True, slots=True)
class JobView:
    """A job.

    ``user`` and ``application`` identify similar earlier jobs. ``tenant`` is a path (``research/eve``),
    ``submitted_at`` Unix time, ``sequence`` breaks ties. ``holds`` are the amounts its tasks hold now (cores, disk
    slots, network slots, bytes of memory), ``containers`` their number. ``service`` is the received service in
    container-seconds (LAS_MQ §3.2). ``remaining`` is R of Ursa §4.2.2 per kind, as seconds of the whole cluster.
    ``needs`` is the number of containers of its unfinished tasks, including running ones (LAS_MQ §3.3), ``wants`` the
    part of them in stages that can run now (§3.4); infinite while no tasks have been reported.
    """

    job: str
    tenant: str = ""
    weight: float = 1.0
    submitted_at: float = 0.0
    sequence: int = 0
    holds: Amounts = (0.0, 0.0, 0.0, 0.0)
    containers: int = 0
    service: float = 0.0
    stages: tuple[StageView, ...] = ()
    remaining: Amounts = (0.0, 0.0, 0.0)
    needs: float = 0.0
    wants: float = 0.0
    user: str = ""
    application: str = ""

    @property
    def earliest(self) -> tuple[float, int]:
        """Return the sort key for the order of submission."""
        return self.submitted_at, self.sequence


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster: ``now`` is Unix time, ``capacity`` cores, disk slots, network slots and bytes of memory,
    ``containers`` the number of one-core containers that fit. L of Ursa §4.2.2, the work of all jobs, is the sum of
    their R.
    """

    now: float = 0.0
    capacity: Amounts = (1.0, 1.0, 1.0, 1.0)
    containers: float = 1.0
