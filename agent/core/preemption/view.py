"""One tick as input to preemption: the containers, and each one's part of each resource.

Amounts are cores, bytes of memory, and for disk and network the fraction of the busiest device's time or rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.core.ledger import Ledger
from agent.core.records import ContainerRecord, ContainerState
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import KindAmounts

RESOURCES = ("memory", "cpu", "disk", "network")
_NOTHING = ContainerUse()
_RUNNING = (ContainerState.STARTING, ContainerState.RUNNING)


@dataclass(frozen=True)
class View:
    """``granted`` is the number of slots per kind that frameworks hold. Containers being stopped are left out."""

    snapshot: Snapshot
    ledger: Ledger
    granted: KindAmounts
    regular: Sequence[ContainerRecord] = field(default=())
    running: Sequence[ContainerRecord] = field(default=())
    """Opportunistic containers that run."""
    paused: Sequence[ContainerRecord] = field(default=())
    """Opportunistic containers that are frozen: they hold memory only."""
    _shares: dict[str, float] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def of(
        cls, snapshot: Snapshot, containers: Sequence[ContainerRecord], ledger: Ledger, granted: KindAmounts
    ) -> View:
        """Classify the containers of a node."""
        return cls(
            snapshot=snapshot,
            ledger=ledger,
            granted=granted,
            regular=[c for c in containers if not c.opportunistic and c.state in _RUNNING],
            running=[c for c in containers if c.opportunistic and c.state in _RUNNING],
            paused=[c for c in containers if c.opportunistic and c.state is ContainerState.PAUSED],
        )

    def candidates(self, resource: str) -> Sequence[ContainerRecord]:
        """Return the containers that can give some of the resource back."""
        return [*self.running, *self.paused] if resource == "memory" else self.running

    def use(self, record: ContainerRecord) -> ContainerUse:
        """Return the container's use; nothing if it has not been sampled yet."""
        return self.snapshot.containers.get(record.container, _NOTHING)

    def held(self, resource: str, record: ContainerRecord) -> float:
        """Return how much of a resource a container has."""
        use = self.use(record)
        if resource == "memory":
            return float(use.memory_bytes)
        if resource == "cpu":
            return use.cpu_cores
        return _bytes_per_s(resource, use) * self._share(resource)

    def sum(self, resource: str, records: Sequence[ContainerRecord]) -> float:
        """Return how much of a resource the containers have together."""
        return sum(self.held(resource, record) for record in records)

    def busy(self, resource: str) -> float | None:
        """Return the busiest disk's busy time, or the busiest link's load, as a fraction; None if unknown."""
        host = self.snapshot.host
        return host.disk_busy if resource == "disk" else host.network_busy

    def _share(self, resource: str) -> float:
        """Return the busy fraction per byte/s, computed once per view. It is over the host's own traffic too, so that
        containers are charged for their part only.
        """
        if resource in self._shares:
            return self._shares[resource]
        host = self.snapshot.host
        if resource == "disk":
            of_host = host.disk_read_bytes_per_s + host.disk_write_bytes_per_s
        else:
            of_host = host.network_send_bytes_per_s + host.network_receive_bytes_per_s
        of_containers = sum(
            _bytes_per_s(resource, self.use(record)) for record in (*self.regular, *self.running, *self.paused)
        )
        most = max(of_host, of_containers)
        self._shares[resource] = share = (self.busy(resource) or 0.0) / most if most > 0 else 0.0
        return share


def _bytes_per_s(resource: str, use: ContainerUse) -> float:
    if resource == "disk":
        return use.disk_bytes_per_s
    return use.network_send_bytes_per_s + use.network_receive_bytes_per_s
