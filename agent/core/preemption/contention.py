"""How much of a resource is needed back: use above T_preempt while the node is over-allocated (UBIS §IV.C).

A node that is busy only with promised work, or with opportunistic work that is in no other work's way, preempts nothing
(YARN-1011). CPU, disk and network are contended only while regular work uses them, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.core.preemption.view import View
from agent.core.records import ContainerRecord
from penstock.model import ResourceKind
from penstock.model.units import counted, format_bytes

#: Regular work that uses less than this part of the capacity does not count as contending.
_ACTIVE = 0.05
#: A paused container resumes when there is room for its former use, or for this much, which it can start with.
_ENOUGH = {"cpu": 0.25, "disk": 0.1, "network": 0.1}
#: For a stalled container, at least this much of its missing promise is freed at once.
_LEAST_BYTES = 16 << 20
#: A container this close to its own limit is stalled by that limit, not by others.
_NEAR_ITS_LIMIT = 0.95


@dataclass(frozen=True, slots=True)
class Contention:
    """``amount`` is to be freed; ``text`` says why, with the numbers."""

    resource: str
    amount: float
    text: str


def contention(resource: str, view: View, threshold: float) -> Contention | None:
    """Return the contention for a resource; None: there is none."""
    if not view.candidates(resource):
        return None
    if resource == "memory":
        return _memory(view, threshold)
    if not _active(resource, view):
        return None
    if resource == "cpu":
        return _cpu(view, threshold)
    busy = view.busy(resource)
    if busy is None or busy <= threshold or view.sum(resource, view.running) <= 0:
        return None  # if no container causes it, pausing them would free nothing
    return Contention(resource, busy - threshold, f"{resource} is {busy:.0%} busy, over T_preempt {threshold:g}")


def _memory(view: View, threshold: float) -> Contention | None:
    capacity = view.ledger.capacity.memory_bytes
    opportunistic = view.candidates("memory")
    held = view.sum("memory", opportunistic)
    used = view.sum("memory", view.regular) + held
    limit = threshold * capacity
    if used <= limit or view.ledger.promised_memory_bytes + max(view.ledger.asked_memory_bytes, held) <= capacity:
        return None
    text = f"containers use {format_bytes(used)} of {format_bytes(capacity)}, over T_preempt {threshold:g}"
    return Contention("memory", used - limit, text)


def _cpu(view: View, threshold: float) -> Contention | None:
    if threshold >= 1.0:  # measured use may be a little more than the cores
        return None
    cores = view.ledger.capacity.cores
    opportunistic = view.sum("cpu", view.running)
    used = view.sum("cpu", view.regular) + opportunistic
    asked = max(sum(record.spec.cpu_cores for record in view.running), opportunistic)
    if used <= threshold * cores or view.ledger.promised_cores + view.granted.cpu + asked <= cores:
        return None
    text = f"containers use {used:.2f} of {counted(cores, 'core')}, over T_preempt {threshold:g}"
    return Contention("cpu", used - threshold * cores, text)


def stalled(view: View, pressed: Iterable[str]) -> Contention | None:
    """Return the promised memory that stalled containers (PSI) have not got yet.

    A container that stalls at its own limit, or beyond its promise, is not stalled by others.
    """
    named = frozenset(pressed)
    missing, short = 0, []
    for record in view.regular:
        if record.container not in named:
            continue
        has, promised = view.use(record).memory_bytes, (record.promise or record.spec).memory_bytes
        limits = [limit for limit in (record.limits.memory_max_bytes, record.limits.memory_high_bytes) if limit]
        if has >= promised or (limits and has >= _NEAR_ITS_LIMIT * min(limits)):
            continue
        missing += max(_LEAST_BYTES, promised - has)
        short.append(f"{record.container} has {format_bytes(has)} of {format_bytes(promised)} promised")
    if not short:
        return None
    return Contention("memory", float(missing), f"promised work stalls for memory: {', '.join(short)}")


def fits_again(resource: str, view: View, threshold: float, record: ContainerRecord, needed: float) -> bool:
    """Return whether a paused container that used ``needed`` may resume; ``threshold``: T_preempt − hysteresis."""
    if not _active(resource, view):
        return True
    least = min(needed, max(_ENOUGH[resource], record.spec.cpu_cores if resource == "cpu" else 0.0))
    if resource == "cpu":
        used = view.sum("cpu", view.regular) + view.sum("cpu", view.running)
        return used + least <= threshold * view.ledger.capacity.cores
    busy = view.busy(resource)
    return busy is None or busy + least <= threshold


def _active(resource: str, view: View) -> bool:
    """Return whether regular work uses the resource now: containers, or frameworks that hold slots of it."""
    if view.granted.of(ResourceKind(resource)) > 0:
        return True
    regular = view.sum(resource, view.regular)
    whole = view.ledger.capacity.cores if resource == "cpu" else 1.0
    return regular > _ACTIVE * whole
