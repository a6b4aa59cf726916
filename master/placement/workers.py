"""The cluster as one round sees it: arrays over workers and (cpu, disk, network, memory), and the needs of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from penstock.model import KINDS, LEAST_PART_CORES, ResourceKind
from penstock.model.resource_vector import HOLDS_NOTHING, SlotVector

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Mask = NDArray[np.bool_]

CPU, DISK, NETWORK, MEMORY = range(4)
COLUMN = {kind: column for column, kind in enumerate(KINDS)}
COLUMN_NAMES = ("cpu", "disk", "network", "memory")
#: A worker's state: its index, pending work per kind, idle cores, free memory, free cores, D.
State = tuple[int, tuple[float, float, float], float, float, float, tuple[float, float, float, float]]
#: A worker's constants within a round: rates, Inc per amount, Inc per slot, CPU slots, bytes of memory.
_Lasting = tuple[list[float], list[float], list[float], float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """A ready task's demand on a worker.

    ``amounts``: bytes of work per kind, and bytes of memory. ``cores``: the promised cores that a command wants.
    ``unknown_size``: the kind of a command without an estimate of its work. ``allowed`` (n) restricts the workers.
    ``holds``: the amounts held while it is placed.
    """

    job: str
    task: str
    amounts: tuple[float, float, float, float]
    cores: float = 0.0
    unknown_size: ResourceKind | None = None
    allowed: Mask | None = None
    holds: SlotVector = HOLDS_NOTHING

    def is_like(self, other: Need) -> bool:
        """Return whether both want the same of every worker."""
        return (
            self.amounts == other.amounts
            and self.cores == other.cores
            and self.unknown_size is other.unknown_size
            and self.allowed is None
            and other.allowed is None
        )


def open_slots(cores_free: Floats, slots: Floats) -> Floats:
    """Return each worker's CPU slots outside the cores promised to commands, as its agent counts them
    (:meth:`penstock.model.Capacity.cpu_slots_withheld`).
    """
    found: Floats = np.clip(np.floor(cores_free + 1.0 - LEAST_PART_CORES), 0.0, slots)
    return found


def spare(
    ept_s: float, rates: Floats, pending: Floats, idle_cores: Floats, cores_free: Floats, slots: Floats
) -> Floats:
    """Return D of Ursa §4.2.2 for each kind (3 × n); arguments as in :class:`Workers`.

    The CPU's processing rate is that of the slots outside promised cores. A node with all cores promised has D_cpu
    above 0 only while its agent reports an idle slot, because the agent lends a promised core that is not in use.
    """
    part = open_slots(cores_free, slots[:, CPU]) / slots[:, CPU]
    apt_s = pending / rates
    with np.errstate(divide="ignore", invalid="ignore"):
        apt_s[:, CPU] = np.where(part > 0, apt_s[:, CPU] / part, np.inf)
    apt_s[idle_cores >= 1, CPU] = 0.0
    d: Floats = np.maximum(0.0, (ept_s - apt_s) / ept_s).T
    return d


class Workers:
    """State of n workers, consumed by :meth:`take`. Units: bytes, bytes/s, cores, slots, seconds.

    ``d`` (4 × n) is D of Ursa §4.2.2, ``memory_free`` (n) the memory not held by regular work, ``cores_free`` (n) the
    cores not promised to commands. ``changes`` lists the workers of permanent placements, in order.

    In Ursa Inc is what a task adds to APT ÷ EPT. Here, on a worker with promised cores, APT_cpu is by the rate of the
    other slots and Inc_cpu by that of all: a task adds more to APT_cpu than its Inc_cpu says.
    """

    def __init__(
        self,
        ept_s: float,
        *,
        rates: Floats,
        pending: Floats,
        slots: Floats,
        idle_cores: Floats,
        memory_free: Floats,
        memory_capacity: Floats,
        cores_free: Floats,
    ) -> None:
        """``rates``, ``pending`` (assigned, unfinished work) and ``slots`` are n × 3, the others n."""
        self.ept_s = ept_s
        self.changes: list[int] = []
        self._memory_free = memory_free.copy()
        self._cores_free = cores_free.copy()
        # Ursa gives D_mem as a fraction of the worker's memory and Inc_mem as "the estimated memory usage". In bytes it
        # would dominate the other terms of F and make Inc ≤ D meaningless; so Inc_mem is a fraction of memory too.
        load_at_ept = np.vstack((rates.T * ept_s, memory_capacity[None, :]))
        self._per_amount: Floats = np.ascontiguousarray(1.0 / load_at_ept)  # 4 × n: Inc is an amount times this
        self._per_slot: Floats = np.ascontiguousarray(1.0 / slots.T)  # 3 × n
        self._d: Floats = np.empty((4, len(rates)))
        self._d[:MEMORY] = spare(ept_s, rates, pending, idle_cores, cores_free, slots)
        self._d[MEMORY] = np.maximum(0.0, memory_free) / memory_capacity
        self._rates, self._pending, self._idle, self._capacity = rates, pending, idle_cores, memory_capacity
        self._cpu_slots = slots[:, CPU]
        self._room: Floats = np.empty((2, 0))
        # Plain numbers are faster for one worker at a time, and few workers are ever taken. The arrays receive the
        # unwritten states when they are next read.
        self._plain: dict[int, State] = {}
        self._lasting: dict[int, _Lasting] = {}
        self._unwritten: set[int] = set()

    def __len__(self) -> int:
        return len(self._idle)

    @property
    def d(self) -> Floats:
        """Return D of each kind and of memory (4 × n)."""
        self._write()
        return self._d

    @property
    def memory_free(self) -> Floats:
        """Return the bytes of memory not held by regular work (n)."""
        self._write()
        return self._memory_free

    @property
    def cores_free(self) -> Floats:
        """Return the cores not promised to commands (n)."""
        self._write()
        return self._cores_free

    def increase(self, need: Need, worker: int) -> list[float]:
        """Return Inc of a task on one worker (4), not clipped to D."""
        _, per_amount, per_slot, _, _ = self._lasting_of(worker)
        inc = [amount * per for amount, per in zip(need.amounts, per_amount, strict=True)]
        if need.unknown_size is not None:
            # A command without an estimate counts as occupying its slot for a whole EPT.
            column = COLUMN[need.unknown_size]
            inc[column] = per_slot[column]
        return inc

    def take(self, worker: int, need: Need) -> State:
        """Place the task there: its work is pending, its memory held, and one idle core is taken. Return the earlier
        state.

        A command with promised cores takes those instead, and its CPU work does not count as pending.

        D becomes max(0, (EPT − APT_r) / EPT), "if CPU in w is immediately available (i.e., idle cores), we simply set
        APT_cpu(w) = 0", and the free fraction of the memory (Ursa §4.2.2).
        """
        undo = self._state(worker)
        rates, _, per_slot, slots, capacity = self._lasting_of(worker)
        ept_s = self.ept_s
        cpu, disk, network, memory = need.amounts
        if need.unknown_size is not None:
            work = [cpu, disk, network]
            column = COLUMN[need.unknown_size]
            work[column] = rates[column] * ept_s * per_slot[column]
            cpu, disk, network = work
        _, (cpu_before, disk_before, network_before), idle, free, cores, _ = undo
        cpu = cpu_before + (0.0 if need.cores else cpu)
        disk, network = disk_before + disk, network_before + network
        idle -= need.cores or cpu > cpu_before
        free -= memory
        cores -= need.cores
        rate = rates[0] * min(slots, max(0, int(cores + 1.0 - LEAST_PART_CORES))) / slots
        d = (
            1.0 if idle >= 1 else max(0.0, (ept_s - cpu / rate) / ept_s) if rate else 0.0,
            max(0.0, (ept_s - disk / rates[1]) / ept_s),
            max(0.0, (ept_s - network / rates[2]) / ept_s),
            max(0.0, free) / capacity,
        )
        self.restore((worker, (cpu, disk, network), idle, free, cores, d))
        return undo

    def restore(self, state: State) -> None:
        """Restore a worker's earlier state."""
        self._plain[state[0]] = state
        self._unwritten.add(state[0])

    def settle(self, state: State) -> None:
        """Set a worker's state permanently: the task tried by :meth:`take` is placed."""
        self.restore(state)
        self.changes.append(state[0])

    def _state(self, worker: int) -> State:
        state = self._plain.get(worker)
        if state is None:
            cpu, disk, network = self._pending[worker].tolist()
            d = self._d[:, worker].tolist()
            free, cores = float(self._memory_free[worker]), float(self._cores_free[worker])
            state = (worker, (cpu, disk, network), float(self._idle[worker]), free, cores, (d[0], d[1], d[2], d[3]))
            self._plain[worker] = state
        return state

    def _lasting_of(self, worker: int) -> _Lasting:
        lasting = self._lasting.get(worker)
        if lasting is None:
            rates, per_amount = self._rates[worker].tolist(), self._per_amount[:, worker].tolist()
            slots, capacity = float(self._cpu_slots[worker]), float(self._capacity[worker])
            lasting = (rates, per_amount, self._per_slot[:, worker].tolist(), slots, capacity)
            self._lasting[worker] = lasting
        return lasting

    def _write(self) -> None:
        """Write changed states into the arrays."""
        if self._unwritten:
            states = [self._plain[worker] for worker in self._unwritten]
            at = np.fromiter(self._unwritten, np.intp, len(states))
            self._memory_free[at] = [state[3] for state in states]
            self._cores_free[at] = [state[4] for state in states]
            self._d[:, at] = np.array([state[5] for state in states]).T
            self._unwritten.clear()

    def swap(self, states: list[State]) -> list[State]:
        """Restore states, the last one first; return the states that undo this when restored in order."""
        redo: list[State] = []
        for state in reversed(states):
            redo.append(self._plain[state[0]])
            self.restore(state)
        redo.reverse()
        return redo

    def fitness(self, needs: NeedsTable, among: Ints | None = None, *, lent: bool = False) -> Floats:
        """Return F(t, w) for every task and worker (Eq. 1, m × n), or the workers ``among``; −∞ where the task must not
        go.

        "We do not assign t to w if D_r(w) = 0 and Inc_r(t, w) > 0 for any r"; where Inc_r > D_r it counts as D_r: so
        each term is min(Inc · D, D · D). A ``lent`` array is overwritten by the next call.
        """
        chosen = slice(None) if among is None else among
        self._write()
        d, free, cores_free = self._d[:, chosen], self._memory_free[chosen], self._cores_free[chosen]
        per_amount, most = self._per_amount[:, chosen] * d, d * d
        shape = (needs.rows, d.shape[1])
        term, fit = self._scratch(shape)
        fit = fit if lent else np.empty(shape)
        first = True
        barred: list[tuple[Mask, Mask]] = []
        for resource in np.flatnonzero(needs.some_ask).tolist():
            into = fit if first else term
            np.multiply(needs.amounts[:, resource, None], per_amount[resource], out=into)
            if resource in needs.unknown:
                into[needs.unknown[resource]] = self._per_slot[resource, chosen] * d[resource]
            np.minimum(into, most[resource], out=into)
            if not first:
                fit += term
            first = False
            spent = d[resource] <= 0.0
            if spent.any():
                barred.append((needs.asks[:, resource], spent))
        if first:
            fit[:] = 0.0
        for asked, spent in barred:
            fit[np.ix_(asked, spent)] = -np.inf
        memory = needs.amounts[:, MEMORY]
        if len(free) and memory.max(initial=0.0) > free.min():
            fit[memory[:, None] > free] = -np.inf
        if needs.some_cores:
            fit[needs.cores[:, None] - 1e-9 > cores_free] = -np.inf  # sums of fractions of cores
        for row, allowed in needs.allowed.items():
            fit[row, ~allowed[chosen]] = -np.inf
        return fit

    def _scratch(self, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return reused arrays for intermediate results: mapping fresh memory takes as long as the computation."""
        size = shape[0] * shape[1]
        if self._room.shape[1] < size:
            self._room = np.empty((2, size))
        return self._room[0, :size].reshape(shape), self._room[1, :size].reshape(shape)

    def fit_on(self, worker: int, need: Need) -> float:
        """Return F of one task on one worker, equal to the last bit to :meth:`fitness`."""
        _, _, _, free, cores, d = self._state(worker)
        amounts = need.amounts
        if amounts[MEMORY] > free or (need.cores and need.cores - 1e-9 > cores):
            return -np.inf
        if need.allowed is not None and not need.allowed[worker]:
            return -np.inf
        _, per_amount, per_slot, _, _ = self._lasting_of(worker)
        unknown = None if need.unknown_size is None else COLUMN[need.unknown_size]
        fit = 0.0
        for resource, amount in enumerate(amounts):
            if amount > 0 or resource == unknown:
                part = d[resource]
                if part <= 0.0:
                    return -np.inf
                term = per_slot[resource] * part if resource == unknown else amount * (per_amount[resource] * part)
                fit += min(term, part * part)
        return fit

    def none_for(self, needs: NeedsTable) -> bool:
        """Return whether all workers lack a resource that all these tasks need, so that no task finds a worker; a quick
        check.
        """
        return bool((needs.all_ask & (self.d.max(axis=1, initial=0.0) <= 0.0)).any())

    def most(self, needs: NeedsTable) -> Floats:
        """Return for each task a bound on F for the rest of the round (m): D is at most 1."""
        inc = needs.amounts * self._per_amount.max(axis=1, initial=0.0)
        for resource, rows in needs.unknown.items():
            inc[rows, resource] = self._per_slot[resource].max(initial=0.0)
        most: Floats = np.minimum(inc, 1.0).sum(axis=1)
        return most


class NeedsTable:
    """Needs of m tasks as arrays.

    ``rows`` is m, ``amounts`` (m × 4), ``asks`` (m × 4): whether Inc is above 0, ``some_ask`` and ``all_ask`` (4): for
    any, for all tasks, ``cores`` (m), ``unknown``: by kind, the rows of commands of unknown size, ``allowed``: by row,
    for tasks limited to some workers.
    """

    __slots__ = ("all_ask", "allowed", "amounts", "asks", "cores", "rows", "some_ask", "some_cores", "unknown")

    rows: int
    amounts: Floats
    asks: Mask
    some_ask: list[bool]
    cores: Floats
    some_cores: bool
    allowed: dict[int, Mask]
    unknown: dict[int, NDArray[np.intp]]

    def __init__(self, needs: list[Need]) -> None:
        amounts = chain.from_iterable(need.amounts for need in needs)
        self.rows = len(needs)
        self.amounts = np.fromiter(amounts, np.float64, 4 * len(needs)).reshape(len(needs), 4)
        self.asks = self.amounts > 0
        self.cores = np.fromiter((need.cores for need in needs), np.float64, len(needs))
        self.some_cores = bool(self.cores.any())
        self.allowed = {row: need.allowed for row, need in enumerate(needs) if need.allowed is not None}
        self.unknown = {}
        kinds = {need.unknown_size for need in needs} - {None}
        for kind in [kind for kind in KINDS if kind in kinds]:
            rows = np.array([row for row, need in enumerate(needs) if need.unknown_size is kind], dtype=np.intp)
            self.unknown[COLUMN[kind]] = rows
            self.asks[rows, COLUMN[kind]] = True
        self.some_ask = [bool(column.any()) for column in self.asks.T]
        self.all_ask: Mask = np.array([bool(column.all()) for column in self.asks.T])

    def part(self, start: int, stop: int) -> NeedsTable:
        """Return the tasks from ``start`` to before ``stop``."""
        if start == 0 and stop >= self.rows:
            return self
        part = NeedsTable.__new__(NeedsTable)
        part.rows = min(stop, self.rows) - start
        part.amounts, part.asks, part.cores = self.amounts[start:stop], self.asks[start:stop], self.cores[start:stop]
        part.some_cores, part.some_ask = self.some_cores, self.some_ask
        part.all_ask = self.all_ask
        part.allowed = {row - start: mask for row, mask in self.allowed.items() if start <= row < stop}
        part.unknown = {
            column: here - start
            for column, rows in self.unknown.items()
            if len(here := rows[(rows >= start) & (rows < stop)])
        }
        return part
