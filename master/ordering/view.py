"""What an ordering sees: one frozen picture of the jobs and the cluster per round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Amounts per resource: cores, disk slots, network slots, bytes of memory (or seconds of work per kind, where said).
Amounts = Sequence[float]


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage: how many tasks it has as far as is known, how many are done, what it has received in
    container-seconds."""

    name: str
    tasks: int
    done: int
    service: float = 0.0

    @property
    def progress(self) -> float:
        """The part of its tasks that is done, 0 to 1."""
        return self.done / self.tasks if self.tasks else 0.0


@dataclass(frozen=True, slots=True)
class JobView:
    """A job.

    ``user`` and ``application`` say which earlier jobs it is like. ``tenant`` is a path (``research/eve``),
    ``submitted_at`` Unix time, ``sequence`` breaks ties. ``holds`` is what its
    tasks hold now (cores, disk slots, network slots, bytes of memory) and ``containers`` how many there are.
    ``service`` is what it has received so far in container-seconds (LAS_MQ §3.2). ``remaining`` is R of Ursa §4.2.2 per
    kind, as seconds of the whole cluster. ``needs`` is how many containers its remaining tasks use, those that run
    included (LAS_MQ §3.3), ``wants`` those of them that belong to stages that can run now (§3.4); infinite while
    the job has said nothing of its tasks.
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
        """Sorts jobs by their submission."""
        return self.submitted_at, self.sequence


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster: ``now`` is Unix time, ``capacity`` cores, disk slots, network slots and bytes of memory,
    ``containers`` how many of one core each fit. L of Ursa §4.2.2, the work of all jobs, is the sum of their R."""

    now: float = 0.0
    capacity: Amounts = (1.0, 1.0, 1.0, 1.0)
    containers: float = 1.0
