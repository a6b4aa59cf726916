"""The part of the master's configuration that its decisions depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from master.ordering import Inside, Multilevel, OrderingSettings, TenantTree
from master.ordering.drf import levels
from master.placement import Peaks, PlacementName
from penstock.model import Capacity

_FIXED = ("heartbeat_s", "executor_placement", "executor_slot_s", "executor_horizon_slots")


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """The settings that :class:`master.core.cluster.Cluster` needs; ``master/config.py`` describes each.

    ``ept_s`` is Ursa's expected processing time; 0: derived from the lengths of tasks (master/placement/lengths.py).
    The default rates are used until a node has measured its own (its first heartbeats report 0); the CPU rate is per
    core.
    """

    interval_s: float = 0.1
    ept_s: float = 0.0
    ordering: str = "ejf"
    ejf_weight: float = 1.0
    srjf_weight: float = 100.0
    las_quantum_s: float = 1.0
    las_mq_queues: int = 10
    las_mq_first_threshold_container_s: float = 100.0
    las_mq_step: float = 10.0
    las_mq_weights: tuple[float, ...] = ()
    las_mq_stage_aware: bool = True
    las_mq_inside: Inside = "demand"
    tenants: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    share_chunk_tasks: int = 4
    placement: PlacementName = "ursa"
    tetris_peak_to_mean: float = 2.0
    stage_aware: bool = True
    network_aware: bool = True
    memory_estimate: bool = False
    max_running_jobs: int = 0
    user_max_jobs: int = 0
    user_max_cores: float = 0.0
    user_max_memory_bytes: int = 0
    admission_wait_max_s: float = 600.0
    heartbeat_s: float = 1.0
    node_timeout_s: float = 10.0
    drained_timeout_s: float = 600.0
    gather_s: float = 5.0
    promotion: bool = True
    preemption_backoff_s: float = 10.0
    preemption_backoff_max_s: float = 60.0
    default_cpu_bytes_per_s: float = 50e6
    default_disk_bytes_per_s: float = 100e6
    default_network_bytes_per_s: float = 100e6
    max_losses: int = 3
    executor_placement: str = "minfrag"
    executor_slot_s: float = 3.0
    executor_horizon_slots: int = 600

    def changed(self, fresh: MasterSettings) -> MasterSettings:
        """Return ``fresh``, with the values that a running master cannot change taken from these settings.

        Values sent to agents, and those that executors' forecasts and promises were made with, do not change.
        """
        return replace(fresh, **{name: getattr(self, name) for name in _FIXED})

    def ordering_settings(self) -> OrderingSettings:
        """Return the settings of the ordering.

        Raises: ValueError: a number is invalid for a queue.
        """
        return OrderingSettings(
            name=self.ordering,
            ejf_weight=self.ejf_weight,
            srjf_weight=self.srjf_weight,
            las_quantum_s=self.las_quantum_s,
            las_mq=Multilevel(
                self.las_mq_queues, self.las_mq_first_threshold_container_s, self.las_mq_step, self.las_mq_weights
            ),
            las_mq_stage_aware=self.las_mq_stage_aware,
            las_mq_inside=self.las_mq_inside,
            weights=self.weights,
            by_tenant=self.by_tenant,
        )

    @property
    def by_tenant(self) -> bool:
        """Return whether the operator has configured tenants: each has its share, then."""
        return bool(self.tenants or self.weights)

    def tenant_of(self, user: str) -> str:
        """Return a user's tenant: the user itself unless configured."""
        return self.tenants.get(user, user)

    @property
    def divides_nodes(self) -> bool:
        """Return whether each node is divided among tenants; under ``fair``, shares are of jobs."""
        return self.by_tenant and self.ordering != "fair"

    def tenant_weights(self, users: Iterable[str]) -> dict[str, float]:
        """Return the tenants of these users, each with its part of a node beside the others."""
        tree = TenantTree(dict.fromkeys(map(self.tenant_of, users)), self.weights)
        return {tenant: float(f"{tree.flat_weight(tenant):.4g}") for tenant in tree.paths}

    def configured_tenants(self) -> dict[str, tuple[str, float]] | None:
        """Return the configured users' tenants with their weights, for nodes without jobs of these users; None: nodes
        are not divided among tenants.
        """
        if not self.divides_nodes:
            return None
        paths = {level for tenant in self.tenants.values() for level in levels(tenant)}
        users = [*self.tenants, *(name for name in self.weights if "/" not in name and name not in paths)]
        weights = self.tenant_weights(users)
        return {user: (tenant := self.tenant_of(user), weights[tenant]) for user in users}

    def peaks(self) -> Peaks:
        """Return the peak use that Tetris assumes for tasks. The defaults give the speeds of disks and links, because a
        node reports the rates of its monotasks, but not the speeds of its devices.
        """
        rates = (self.default_cpu_bytes_per_s, self.default_disk_bytes_per_s, self.default_network_bytes_per_s)
        return Peaks(rates, self.tetris_peak_to_mean)

    def default_rates(self, capacity: Capacity) -> tuple[float, float, float]:
        """Return bytes/s per kind for a node that has measured nothing yet."""
        return (
            self.default_cpu_bytes_per_s * max(capacity.cores, 1.0),
            self.default_disk_bytes_per_s,
            self.default_network_bytes_per_s,
        )


@dataclass(slots=True)
class CurrentSettings:
    """The settings in force. The owners of the cluster's state share one, so that a change reaches all of them."""

    current: MasterSettings
