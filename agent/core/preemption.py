"""UBIS on the node (§IV.C): when the containers together use more than T_preempt of a resource, opportunistic ones go.

Memory at the first sample that says so; CPU, disk and network after ``preempt_after`` samples in a row. Only while
the node is over-allocated: a node that is merely busy with what it promised kills nobody (YARN-1011). Victims are the
newest opportunistic containers, until what they use covers the excess. Victims that are dying count as gone already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.core.ledger import Ledger
from agent.core.records import ContainerRecord, ContainerState
from agent.core.settings import Thresholds
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model.units import format_bytes

_NOTHING = ContainerUse()
RESOURCES = ("memory", "cpu", "disk", "network")


@dataclass(frozen=True, slots=True)
class Victim:
    """Who goes, for which resource, and the numbers that say so."""

    container: str
    resource: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Excess:
    amount: float
    text: str


class Preemption:
    """Counts breaches in a row; one instance per node, fed one snapshot per tick."""

    def __init__(self, thresholds: Thresholds, preempt_after: int) -> None:
        self._thresholds = thresholds
        self._preempt_after = preempt_after
        self._breaches = dict.fromkeys(RESOURCES, 0)

    def victims(
        self, snapshot: Snapshot, containers: Sequence[ContainerRecord], ledger: Ledger, granted_cores: int
    ) -> list[Victim]:
        """Who must go now. ``granted_cores`` is the number of CPU slots that frameworks hold."""
        live = [c for c in containers if c.state in (ContainerState.STARTING, ContainerState.RUNNING)]
        candidates = sorted((c for c in live if c.opportunistic), key=lambda c: -c.order)
        uses = {c.container: snapshot.containers.get(c.container, _NOTHING) for c in live}
        chosen: dict[str, Victim] = {}
        for resource in RESOURCES:
            excess = self._excess(resource, snapshot, candidates, uses, ledger, granted_cores)
            if excess is None:
                self._breaches[resource] = 0
                continue
            self._breaches[resource] += 1
            if resource != "memory" and self._breaches[resource] < self._preempt_after:
                continue
            self._breaches[resource] = 0
            for victim in _cover(resource, excess, candidates, uses, chosen):
                chosen[victim.container] = victim
        return list(chosen.values())

    def _excess(
        self,
        resource: str,
        snapshot: Snapshot,
        candidates: Sequence[ContainerRecord],
        uses: dict[str, ContainerUse],
        ledger: Ledger,
        granted_cores: int,
    ) -> _Excess | None:
        if not candidates:
            return None
        capacity = ledger.capacity
        opportunistic = [uses[c.container] for c in candidates]
        if resource == "memory":
            used = sum(use.memory_bytes for use in uses.values())
            limit = self._thresholds.memory * capacity.memory_bytes
            held = sum(use.memory_bytes for use in opportunistic)
            allocated = ledger.promised_memory_bytes + max(ledger.asked_memory_bytes, held)
            if used <= limit or allocated <= capacity.memory_bytes:
                return None
            return _Excess(
                used - limit,
                f"containers use {format_bytes(used)} of {format_bytes(capacity.memory_bytes)}, "
                f"over T_preempt {self._thresholds.memory:g}",
            )
        if resource == "cpu":
            cores = sum(use.cpu_cores for use in uses.values())
            limit = self._thresholds.cpu * capacity.cores
            allocated_cores = ledger.promised_cores + granted_cores
            allocated_cores += max(ledger.asked_cores, sum(use.cpu_cores for use in opportunistic))
            if cores <= limit or allocated_cores <= capacity.cores:
                return None
            return _Excess(
                cores - limit,
                f"containers use {cores:.2f} of {capacity.cores:g} cores, over T_preempt {self._thresholds.cpu:g}",
            )
        return self._device_excess(resource, snapshot, opportunistic)

    def _device_excess(
        self, resource: str, snapshot: Snapshot, opportunistic: Sequence[ContainerUse]
    ) -> _Excess | None:
        """Disk and network: nobody is promised a share, so what opportunistic work uses there is over-allocation."""
        host = snapshot.host
        busy = host.disk_busy if resource == "disk" else host.network_busy
        threshold = self._thresholds.disk if resource == "disk" else self._thresholds.network
        if busy is None or busy <= threshold:
            return None
        used = sum(use.disk_bytes_per_s for use in opportunistic) if resource == "disk" else 1.0
        if used <= 0:
            return None  # the device is busy with other people's work: killing ours would free nothing
        share = (busy - threshold) / busy
        return _Excess(used * share, f"{resource} is {busy:.0%} busy, over T_preempt {threshold:g}")


def _cover(
    resource: str,
    excess: _Excess,
    candidates: Sequence[ContainerRecord],
    uses: dict[str, ContainerUse],
    chosen: dict[str, Victim],
) -> list[Victim]:
    """Newest first, until what they use covers the excess; those chosen for another resource count."""

    def held(container: str) -> float:
        use = uses[container]
        by_resource = {"memory": float(use.memory_bytes), "cpu": use.cpu_cores, "disk": use.disk_bytes_per_s}
        return by_resource.get(resource, 1.0)

    left = excess.amount - sum(held(container) for container in chosen)
    victims: list[Victim] = []
    for candidate in candidates:
        if left <= 0:
            break
        if candidate.container in chosen or held(candidate.container) <= 0:
            continue
        left -= held(candidate.container)
        reason = f"{resource}: {excess.text}; newest opportunistic container goes first"
        victims.append(Victim(candidate.container, resource, reason))
    return victims
