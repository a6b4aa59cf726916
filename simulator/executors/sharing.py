"""Compute the speed of executors on machines whose resources may be in excess demand."""

from __future__ import annotations

import numpy as np

from master.placement.drr import Floats, Ints

_EPSILON = 1e-9


def per_machine(values: Floats, machine: Ints, machines: int) -> Floats:
    """Return the sum of the rows (n × resources) of each machine: machines × resources."""
    return np.stack([np.bincount(machine, column, machines) for column in values.T], axis=1)


def contended(wanted: Floats, machine: Ints, capacity: Floats, loss: Floats) -> Floats:
    """Return the rates (machines × resources) that resources deliver under contention.

    ``loss`` (one per resource): beyond capacity, the rate is capacity ÷ (1 + loss × (wanted ÷ capacity − 1)).
    """
    excess = np.maximum(per_machine(wanted, machine, len(capacity)) / capacity - 1, 0.0)
    delivered: Floats = capacity / (1 + loss * excess)
    return delivered


def shares(wanted: Floats, machine: Ints, capacity: Floats) -> Floats:
    """Return the fraction (n) of full speed at which each executor progresses.

    ``wanted`` (n × resources) is an executor's use at full speed, ``capacity`` is machines × resources. Progressive
    filling: all executors of a machine speed up together until a resource is used up. Executors that use it keep their
    speed, and the others go on. The result is work-conserving.
    """
    level = np.ones(len(machine))
    total = per_machine(wanted, machine, len(capacity))
    if (total <= capacity * (1 + _EPSILON)).all():
        return level
    level[:] = 0.0
    active = np.ones(len(machine), dtype=np.bool_)
    left, reached = capacity.copy(), np.zeros(len(capacity))
    while active.any():
        need = per_machine(wanted * active[:, None], machine, len(capacity))
        room = np.divide(left, need, out=np.full_like(left, np.inf), where=need > 0)
        step = np.minimum(room.min(axis=1), 1 - reached)
        reached += step
        level[active] = reached[machine[active]]
        left -= need * step[:, None]
        used_up = (left <= _EPSILON * capacity) & (need > 0)
        stays = ((wanted > 0) & used_up[machine]).any(axis=1) | (reached[machine] >= 1 - _EPSILON)
        active &= ~stays
    return level
