"""The part of the agent's configuration that its decisions depend on."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from penstock.model import Capacity
from penstock.model.resource_vector import ResourceVector


@dataclass(frozen=True, slots=True)
class Thresholds:
    """T_preempt per resource, as fractions of capacity (UBIS §IV.C).

    At 1 nothing is frozen for the CPU: opportunistic work runs only on cycles that no other work wants (``cpu.idle``).
    """

    cpu: float = 1.0
    memory: float = 0.9
    disk: float = 0.95
    network: float = 0.95


class VictimOrder(enum.StrEnum):
    """Which opportunistic container goes first; ``prefer`` containers come before all others, ``avoid`` ones after."""

    NEWEST = "newest"  # started last (UBIS §IV.C)
    LEAST_PROGRESS = "least_progress"  # least CPU time is lost with it
    LARGEST = "largest"  # holds most of the contended resource


@dataclass(frozen=True, slots=True)
class PreemptionSettings:
    """How preemption works.

    ``after`` consecutive samples above T_preempt count as contention (CPU, disk, network; memory at once), or the
    resource's own number (``after_cpu`` …). A paused container resumes when use has been ``hysteresis`` (a fraction of
    capacity) below T_preempt for as many samples. Actions for a resource are at least ``cooldown_s`` apart; memory does
    not wait, because containers being stopped count as gone.
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
        """Return how many consecutive samples count for this resource."""
        own: int = getattr(self, f"after_{resource}")
        return own or self.after


@dataclass(frozen=True, slots=True)
class UserQuotas:
    """The maximum of each for one user here (:mod:`agent.core.quotas`); 0: unlimited."""

    jobs: int = 0
    queued: int = 0
    tasks: int = 0
    containers: int = 0
    cores: float = 0.0
    memory_bytes: int = 0
    pids: int = 0  # of each container


@dataclass(frozen=True, slots=True)
class TuningSettings:
    """How T_alloc is tuned between ``least`` and ``most``, which should not exceed T_preempt.

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
    """The settings of :class:`agent.core.node.Node`. ``t_alloc`` is UBIS's over-allocation threshold (§IV.A)."""

    node: str
    instance: str  # random per start of the agent: makes the ids of jobs and containers unique
    capacity: Capacity
    has_master: bool = False
    ranked: bool = False  # the kernel gives processors to commands in the order of their jobs (agent/core/ranks.py)
    network_bypass_bytes: int = 16 * 1024
    disk_small_bytes: int = 64 * 1024
    lease_s: float = 0.0  # 0: every monotask is granted separately
    lease_kept_s: float = 0.0  # 0: jobs may not keep idle slots
    job_wait_max_s: float = 30.0
    slot_held_max_s: float = 60.0  # while another user's job has waited job_wait_max_s; 0: for ever
    link_bytes_per_s: int = 0  # the basis of network promises: the slowest link's rate; 0: unknown
    disk_bytes_per_s: int = 0  # the disk capacity for executors' plans; 0: unknown
    executor_slot_s: float = 3.0  # of executors' recordings, and of the availability reported
    sample_interval_s: float = 1.0  # usual time between two samples
    elastic_lead_s: float = 0.3  # a container's limits rise this long before its profile does
    elastic_lag_s: float = 0.3  # … and fall this long after it
    reprovision_rho: float = 1.1  # a stage that takes this multiple of its time is overdue (Elasecutor §III.C)
    rate_window_s: float = 10.0
    t_alloc: float = 0.9
    t_alloc_tuning: TuningSettings | None = None
    opportunistic_queue: int = 0  # placed commands that may wait here for slack (UBIS §VII)
    opportunistic_wait_s: float = 10.0  # after that they go back to the master
    preemption: PreemptionSettings = field(default_factory=PreemptionSettings)
    rejoin_s: float = 30.0
    keep_ended: int = 100
    quotas: UserQuotas = field(default_factory=UserQuotas)

    def changed(self, fresh: NodeSettings) -> NodeSettings:
        """Return these settings with those of ``fresh`` that may change while a node runs.

        The node's identity and capacity stay, as do the settings that connections, records and plans depend on.
        """
        return replace(fresh, **{name: getattr(self, name) for name in _FIXED})

    @property
    def amounts(self) -> ResourceVector:
        """The resources of the node; an unknown rate is 0."""
        rates = (float(self.disk_bytes_per_s), float(self.link_bytes_per_s))
        return ResourceVector(self.capacity.cores, *rates, float(self.capacity.memory_bytes))
