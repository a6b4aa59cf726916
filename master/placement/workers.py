"""The cluster as one round sees it: arrays of workers × (cpu, disk, network, memory), and what a task needs of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model import KINDS, ResourceKind

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

CPU, DISK, NETWORK, MEMORY = range(4)
COLUMN = {kind: column for column, kind in enumerate(KINDS)}
COLUMN_NAMES = ("cpu", "disk", "network", "memory")


@dataclass(slots=True)
class Workers:
    """State of n workers, of which :meth:`take` consumes. Unit: bytes, bytes/s, cores, slots, seconds.

    ``pending`` (n × 3) is the work assigned and not done, ``rates`` (n × 3) the processing rates, ``slots`` (n × 3) the
    concurrency limits, ``idle_cores`` (n) the free CPU slots, ``memory_free`` and ``memory_capacity`` (n) what is not
    held by regular work and what there is, ``cores_free`` (n) the cores that are not promised to commands.
    """

    names: list[str]
    ept_s: float
    rates: Floats
    pending: Floats
    slots: Floats
    idle_cores: Floats
    memory_free: Floats
    memory_capacity: Floats
    cores_free: Floats
    load_at_ept: Floats  # (n × 4): the amount of each resource that makes Inc = 1
    d: Floats  # (n × 4): D of Ursa §4.2.2

    @classmethod
    def of(
        cls,
        names: list[str],
        ept_s: float,
        *,
        rates: Floats,
        pending: Floats,
        slots: Floats,
        idle_cores: Floats,
        memory_free: Floats,
        memory_capacity: Floats,
        cores_free: Floats,
    ) -> Workers:
        """Compute D and the unit of Inc from what was measured."""
        # Ursa gives D_mem as a fraction of the worker's memory and Inc_mem as "the estimated memory usage". As bytes it
        # would drown the other terms of F, and Inc ≤ D could not be asked; so Inc_mem is a fraction of memory too.
        load_at_ept = np.column_stack((rates * ept_s, memory_capacity))
        workers = cls(
            names, ept_s, rates, pending, slots, idle_cores, memory_free, memory_capacity, cores_free, load_at_ept,
            np.empty((len(names), 4)),
        )  # fmt: skip
        for worker in range(len(names)):
            workers.update(worker)
        return workers

    def copy(self) -> Workers:
        """For a plan that may be thrown away: what never changes within a round is shared."""
        return Workers(
            self.names, self.ept_s, self.rates, self.pending.copy(), self.slots, self.idle_cores.copy(),
            self.memory_free.copy(), self.memory_capacity, self.cores_free.copy(), self.load_at_ept, self.d.copy(),
        )  # fmt: skip

    def update(self, worker: int) -> None:
        """D of one worker: max(0, (EPT − APT_r) / EPT), and the free fraction of its memory (Ursa §4.2.2)."""
        apt_s = self.pending[worker] / self.rates[worker]
        if self.idle_cores[worker] >= 1:
            apt_s[CPU] = 0.0  # "if CPU in w is immediately available (i.e., idle cores), we simply set APT_cpu(w) = 0"
        row = self.d[worker]
        np.maximum(0.0, (self.ept_s - apt_s) / self.ept_s, out=row[:MEMORY])
        row[MEMORY] = max(0.0, self.memory_free[worker]) / self.memory_capacity[worker]

    def increase(self, need: Need) -> Floats:
        """Inc of a task on every worker (n × 4), not yet clipped to D."""
        inc: Floats = need.amounts / self.load_at_ept
        if need.unknown_size is not None:
            # A command that says nothing about its work takes its slot for a whole EPT, as far as anybody can know.
            column = COLUMN[need.unknown_size]
            inc[:, column] = 1.0 / self.slots[:, column]
        return inc

    def increase_on(self, worker: int, need: Need) -> Floats:
        """Inc of a task on one worker (4)."""
        inc: Floats = need.amounts / self.load_at_ept[worker]
        if need.unknown_size is not None:
            column = COLUMN[need.unknown_size]
            inc[column] = 1.0 / self.slots[worker, column]
        return inc

    def take(self, worker: int, need: Need) -> None:
        """The task is placed there: its work is pending, its memory held, and one idle core is spoken for."""
        inc = self.increase_on(worker, need)
        self.pending[worker] += (inc * self.load_at_ept[worker])[:MEMORY]
        if inc[CPU] > 0:
            self.idle_cores[worker] -= 1
        self.memory_free[worker] -= need.amounts[MEMORY]
        self.cores_free[worker] -= need.cores
        self.update(worker)


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """What a ready task asks of a worker.

    ``amounts`` (4): bytes of work per kind and bytes of memory. ``cores`` is what a command wants promised.
    ``unknown_size`` is the kind of a command that says nothing about its work. ``allowed`` (n) restricts the choice.
    """

    job: str
    task: str
    amounts: Floats
    cores: float = 0.0
    unknown_size: ResourceKind | None = None
    allowed: Mask | None = None

    def signature(self) -> tuple[object, ...]:
        """Needs with the same signature can be kept from a worker by the same things, but for the amount of memory."""
        return (self.amounts[CPU] > 0, self.amounts[DISK] > 0, self.amounts[NETWORK] > 0, self.unknown_size, self.cores)
