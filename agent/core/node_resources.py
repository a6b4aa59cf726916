"""The node's resources, from the present containers and tasks and the latest sample."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.containers import Containers
from agent.core.elasticity import Elasticity
from agent.core.executors import Executors
from agent.core.ledger import Ledger, compute_ledger
from agent.core.snapshot import Snapshot
from agent.core.tasks import HeldTasks
from penstock.model import Capacity
from penstock.model.resource_vector import NOTHING, ResourceVector


@dataclass(eq=False, slots=True)
class NodeResources:
    """Keeps the latest sample; the sums are made anew for each decision."""

    _capacity: Capacity
    _containers: Containers
    _held: HeldTasks
    _elasticity: Elasticity
    _executors: Executors
    snapshot: Snapshot | None = None

    def ledger(self, now: float) -> Ledger:
        """Return the sums of promised, requested and used resources now."""
        containers, planned = self._containers.live.values(), self._executors.planned
        peak = self._executors.peak(now) if planned else NOTHING
        return compute_ledger(self._capacity, containers, self._held, self.snapshot, planned, peak)

    def promised_without_profile(self) -> ResourceVector:
        """Return the promises to regular work that follows no profile, if an executor's plan depends on them."""
        if not self._elasticity.has_executors:
            return NOTHING
        containers, planned = self._containers.live.values(), self._executors.planned
        return compute_ledger(self._capacity, containers, self._held, None, planned).promised_without_profile
