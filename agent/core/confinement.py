"""The kernel settings of one container: its limits, and those that its class derives from promise and slack.

A regular container's promise is protected: CPU by its weight, memory by ``memory.low``, the network by the rate of its
HTB class. An opportunistic one gets only what remains: ``cpu.idle``, no protected memory, the lowest weight on disks,
the lowest priority on the network (UBIS §IV.A; measured in docs/benchmarks/kernel.md). A container never moves to
another cgroup: its class is a set of settings, so promotion (UBIS §IV.D) is a change in place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import attrgetter

import msgspec

from penstock.model import ContainerSpec, Limits

#: cpu.weight of one promised core. Weights go from 1 to 10,000, so this distinguishes up to a hundred cores.
WEIGHT_PER_CORE = 100
#: The largest cpu.weight (CGROUP_WEIGHT_MAX, include/linux/cgroup.h); a first job on 106 cores had more.
MOST_WEIGHT = 10_000
#: cpu.weight of a regular container without promised CPU: ten of them take less than one promised core.
UNPROMISED_WEIGHT = 10
#: A limit that exceeds the promised cores by no more than this part of them, or this many, leaves nothing to rank:
#: where an executor's limit follows its promise, it is so close (HYSTERESIS and LEAST, agent/core/profile_follower.py).
_CLOSE_PART, _CLOSE_CORES = 0.1, 0.05
#: io.weight (bfq takes up to 1000): ten opportunistic containers together get a hundredth of a regular one's share.
DISK_WEIGHT, OPPORTUNISTIC_DISK_WEIGHT = 1000, 1
#: io.weight of a regular container by the rank of its job, a factor of 16 as with cpu.weight; the last holds for all
#: further ranks.
RANKED_DISK_WEIGHTS = (DISK_WEIGHT, 62, 10)
#: From this rank on, ranks are equal on disks and on the network.
LAST_RANK = len(RANKED_DISK_WEIGHTS) - 1


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The protected resources of a container with a varying promise, like an executor's (Elasecutor §III.B)."""

    cpu_cores: float
    memory_bytes: int
    network_bytes_per_s: int


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """One field per kernel setting; a limit has the name it has in penstock.model.Limits.

    ``None`` is the kernel's default, no limit. ``network_rate_bytes_per_s`` is the promised rate of the HTB class, 0
    for none; its ceiling is ``network_egress_bytes_per_s``.
    """

    opportunistic: bool = False
    cpu_cores: float | None = None  # cpu.max
    cpu_burst_s: float | None = None  # cpu.max.burst
    cpu_weight: int = 100  # cpu.weight; without effect while opportunistic (cpu.idle)
    cpus: str | None = None  # cpuset.cpus
    memory_min_bytes: int = 0  # memory.min
    memory_low_bytes: int = 0  # memory.low
    memory_high_bytes: int | None = None  # memory.high
    memory_max_bytes: int | None = None  # memory.max
    oom_group: bool = False  # memory.oom.group
    disk_weight: int = 100  # io.weight or io.bfq.weight, where one of them has an effect
    disk_read_bytes_per_s: int | None = None  # io.max rbps …
    disk_write_bytes_per_s: int | None = None
    disk_read_ops_per_s: int | None = None
    disk_write_ops_per_s: int | None = None
    network_rate_bytes_per_s: int = 0
    network_egress_bytes_per_s: int | None = None
    network_ingress_bytes_per_s: int | None = None
    pids_max: int | None = None  # pids.max
    rank: int = 0  # its job's rank on the network: HTB's priority
    borrowed: bool = False  # it was started outside, so defaults for all containers do not apply


_FIELDS = Confinement.__struct_fields__
_values = attrgetter(*_FIELDS)
#: The limits that are kernel settings as they are; the weight depends on class, promise and rank, too.
_LIMITS = tuple(name for name in Limits.__struct_fields__ if name != "cpu_weight")


def differing(before: Confinement | None, after: Confinement) -> frozenset[str]:
    """Return the names of the fields that differ; all if nothing is known of the former state."""
    if before is None:
        return frozenset(_FIELDS)
    each = zip(_FIELDS, _values(before), _values(after), strict=True)
    return frozenset(name for name, had, has in each if had != has)


def without(not_enforced: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the other settings that are not enforced; a limit's name may be followed by that of a link."""
    return {name: why for name, why in not_enforced.items() if name.split(" ")[0] not in names}


def worth_saying(
    not_enforced: Mapping[str, str], spec: ContainerSpec, limits: Limits, *, opportunistic: bool
) -> dict[str, str]:
    """Return the unenforced settings that were asked for: limits, the class, a share of the network, the end of the
    whole container when it is out of memory. The other protections that this host lacks are reported by
    `penstock check`.
    """
    asked = {name for name in limits.__struct_fields__ if getattr(limits, name) is not None}
    if opportunistic:
        asked.add("opportunistic")
    if spec.network_bytes_per_s:
        asked.add("network_rate_bytes_per_s")
    if spec.oom_group:
        asked.add("oom_group")
    return {name: why for name, why in not_enforced.items() if name.split(" ")[0] in asked}


def promised_weight(promised_cores: float) -> int:
    """Return the weight of promised cores."""
    return max(1, round(WEIGHT_PER_CORE * promised_cores))


def goes_beyond(promised_cores: float, limits: Limits) -> bool:
    """Return whether a container may use more than its promised cores, so that its job's rank matters."""
    return limits.cpu_cores is None or limits.cpu_cores > promised_cores + max(
        _CLOSE_CORES, _CLOSE_PART * promised_cores
    )


def weight_of(promised_cores: float, limits: Limits, rank_weight: int) -> int:
    """Return the ``cpu.weight`` of a container: that of its promised cores, and that of its job's rank (0: none yet)
    for what it may use beyond them.
    """
    if not promised_cores:
        return min(MOST_WEIGHT, rank_weight or limits.cpu_weight or UNPROMISED_WEIGHT)
    beyond = rank_weight if goes_beyond(promised_cores, limits) else 0
    return min(MOST_WEIGHT, promised_weight(promised_cores) + beyond)


def confine(
    spec: ContainerSpec,
    limits: Limits,
    *,
    opportunistic: bool,
    promise: Promise | None = None,
    rank_weight: int = 0,
    rank: int = 0,
    borrowed: bool = False,
    early: bool = False,
) -> Confinement:
    """Return the kernel settings of a container with these limits.

    ``promise`` replaces the promise in ``spec`` where it varies. ``rank_weight`` is the weight by its job's rank
    (:mod:`agent.core.ranks`), in addition to that of promised cores; 0: it has no rank yet. ``rank`` is its job's, 0
    for the first and for containers without a rank, :data:`LAST_RANK` at most. ``early``: its job's reservation
    promises it no cores yet.
    """
    promised = not opportunistic
    protected: ContainerSpec | Promise = promise or spec
    promised_cores = 0.0 if early else protected.cpu_cores
    weight = weight_of(promised_cores, limits, rank_weight)
    ranked = rank if promised and not promised_cores else 0
    return Confinement(
        **{name: getattr(limits, name) for name in _LIMITS},
        opportunistic=opportunistic,
        cpu_weight=weight,
        memory_low_bytes=protected.memory_bytes if promised else 0,
        oom_group=spec.oom_group,
        disk_weight=RANKED_DISK_WEIGHTS[ranked] if promised else OPPORTUNISTIC_DISK_WEIGHT,
        network_rate_bytes_per_s=protected.network_bytes_per_s if promised else 0,
        rank=ranked,
        borrowed=borrowed,
    )
