"""The part of the agent's configuration that its decisions depend on."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model import Capacity


@dataclass(frozen=True, slots=True)
class Thresholds:
    """T_preempt per resource, as fractions of capacity (UBIS §IV.C)."""

    cpu: float = 0.95
    memory: float = 0.9
    disk: float = 0.95
    network: float = 0.95


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What :class:`agent.core.node.Node` must know. ``t_alloc`` is UBIS's over-allocation threshold (§IV.A)."""

    node: str
    instance: str  # random per start of the agent: makes the ids of jobs and containers unique
    capacity: Capacity
    has_master: bool = False
    network_bypass_bytes: int = 16 * 1024
    rate_window_s: float = 10.0
    t_alloc: float = 0.9
    t_preempt: Thresholds = field(default_factory=Thresholds)
    preempt_after: int = 3
    rejoin_s: float = 30.0
    keep_ended: int = 100
