"""The part of the agent's configuration that its decisions depend on."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from penstock.model import Capacity


@dataclass(frozen=True, slots=True)
class Thresholds:
    """T_preempt per resource, as fractions of capacity (UBIS §IV.C)."""

    cpu: float = 0.95
    memory: float = 0.9
    disk: float = 0.95
    network: float = 0.95


class VictimOrder(enum.StrEnum):
    """Which opportunistic container goes first; who said ``prefer`` comes before, who said ``avoid`` after."""

    NEWEST = "newest"  # started last (UBIS §IV.C)
    LEAST_PROGRESS = "least_progress"  # least CPU time is lost with it
    LARGEST = "largest"  # holds most of what is wanted


@dataclass(frozen=True, slots=True)
class PreemptionSettings:
    """How preemption goes about it.

    ``after`` samples in a row above T_preempt count as contention (CPU, disk, network; memory at once); of a resource
    with a number of its own (``after_cpu`` …) so many. What was paused
    goes on when use has been ``hysteresis`` (a fraction of capacity) below T_preempt for as many samples. Between two
    actions for a resource lie at least ``cooldown_s``; memory does not wait, since the dying count as gone.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    after: int = 3
    after_cpu: int = 0  # 0: ``after``
    after_disk: int = 0
    after_network: int = 0
    hysteresis: float = 0.05
    cooldown_s: float = 5.0
    order: VictimOrder = VictimOrder.NEWEST
    starved_after_s: float = 60.0  # 0: never hand back
    grace_max_s: float = 30.0
    dry_run: bool = False

    def samples(self, resource: str) -> int:
        """So many in a row count for this resource."""
        own: int = getattr(self, f"after_{resource}")
        return own or self.after


@dataclass(frozen=True, slots=True)
class UserQuotas:
    """The most of each that one user may have here (:mod:`agent.core.quotas`); 0: as much as he likes."""

    jobs: int = 0
    queued: int = 0
    tasks: int = 0
    containers: int = 0
    cores: float = 0.0
    memory_bytes: int = 0
    pids: int = 0  # of each container


@dataclass(frozen=True, slots=True)
class TuningSettings:
    """How T_alloc tunes itself between ``least`` and ``most``, which should not lie above T_preempt.

    A ``step`` up needs ``calm_s`` without a preemption, and utilization within ``margin`` of T_alloc; after a
    preemption T_alloc is multiplied by ``back_off``.
    """

    least: float
    most: float
    step: float = 0.02
    back_off: float = 0.9
    calm_s: float = 30.0
    margin: float = 0.05


_FIXED = (
    "node", "instance", "capacity", "has_master", "ranked", "network_bypass_bytes", "link_bytes_per_s",
    "disk_bytes_per_s", "executor_slot_s", "rate_window_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What :class:`agent.core.node.Node` must know. ``t_alloc`` is UBIS's over-allocation threshold (§IV.A)."""

    node: str
    instance: str  # random per start of the agent: makes the ids of jobs and containers unique
    capacity: Capacity
    has_master: bool = False
    ranked: bool = False  # the kernel gives processors to commands in the order of their jobs (agent/core/ranks.py)
    network_bypass_bytes: int = 16 * 1024
    disk_small_bytes: int = 64 * 1024
    lease_s: float = 0.0  # 0: every monotask is granted on its own
    lease_kept_s: float = 0.0  # 0: no slot is idle in a job's hands
    job_wait_max_s: float = 30.0
    slot_held_max_s: float = 60.0  # while a job of another user has waited job_wait_max_s; 0: for ever
    link_bytes_per_s: int = 0  # what the network can be promised to: the slowest link's rate; 0: unknown
    disk_bytes_per_s: int = 0  # what the disks are planned with, where executors have profiles; 0: unknown
    executor_slot_s: float = 3.0  # of what executors are recorded to use, and of the availability that is told
    sample_interval_s: float = 1.0  # between two samples that are on time
    elastic_lead_s: float = 0.3  # so long before a rise of its profile a container's limits rise
    elastic_lag_s: float = 0.3  # so long after a fall they fall
    reprovision_rho: float = 1.1  # a stage that takes so many times its time is overdue (Elasecutor §III.C)
    rate_window_s: float = 10.0
    t_alloc: float = 0.9
    t_alloc_tuning: TuningSettings | None = None
    opportunistic_queue: int = 0  # placed commands that may wait here for slack (UBIS §VII)
    opportunistic_wait_s: float = 10.0  # then they go back to the master
    preemption: PreemptionSettings = field(default_factory=PreemptionSettings)
    rejoin_s: float = 30.0
    keep_ended: int = 100
    quotas: UserQuotas = field(default_factory=UserQuotas)

    def changed(self, fresh: NodeSettings) -> NodeSettings:
        """These with what of ``fresh`` may change while a node runs.

        What the node is, what it has to promise, and what connections, records and plans were made with, stays.
        """
        return replace(fresh, **{name: getattr(self, name) for name in _FIXED})

    @property
    def amounts(self) -> tuple[float, float, float, float]:
        """Cores, disk bytes/s, bytes/s sent, bytes of memory that there are; a rate that is unknown is 0."""
        rates = (float(self.disk_bytes_per_s), float(self.link_bytes_per_s))
        return (self.capacity.cores, *rates, float(self.capacity.memory_bytes))
