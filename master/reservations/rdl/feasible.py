"""Whether a request could be kept by an empty cluster that nobody else uses, and if not, why."""

from __future__ import annotations

from master.reservations.rdl.expressions import All, Any, Atom, Bundle, Expression, Order, Window
from master.reservations.rdl.normal import normalized


class _Cannot(Exception):  # noqa: N818 - it is an answer
    pass


def infeasible(expression: Expression, now: int = 0, capacity: Bundle | None = None) -> str:
    """Why nothing could ever satisfy it from step ``now`` on, in a line; empty if something could.

    ``capacity`` is all that the cluster has at its best. Every reason is right; what it finds nothing against may still
    be impossible, where several parts together want more than the cluster has.
    """
    try:
        _earliest(normalized(expression), now, capacity)
    except _Cannot as reason:
        return str(reason)
    return ""


def _earliest(expression: Expression, since: int, capacity: Bundle | None) -> int:
    """The earliest end of what begins no sooner than ``since``."""
    match expression:
        case Atom():
            return _atom(expression, since, capacity)
        case Window(part):
            return _earliest(part, since, capacity)
        case All(parts):
            return max(_earliest(part, since, capacity) for part in parts)
        case Order(parts):
            for part in parts:
                since = _earliest(part, since, capacity)
            return since
        case Any(parts):
            ends, reasons = [], []
            for part in parts:
                try:
                    ends.append(_earliest(part, since, capacity))
                except _Cannot as reason:
                    reasons.append(str(reason))
            if not ends:
                raise _Cannot("; or ".join(dict.fromkeys(reasons)))
            return min(ends)


def _atom(atom: Atom, since: int, capacity: Bundle | None) -> int:
    if not atom.work:
        return since
    most = _fits(atom, capacity)
    start = max(since, atom.start or 0)
    takes = max(atom.lease, -(-atom.work // most))
    if atom.finish is not None and start + takes > atom.finish:
        has = max(0, atom.finish - start)
        why = f"its lease of {atom.lease}" if takes == atom.lease else f"{atom.work} bundle-steps at {most} at once"
        raise _Cannot(f"{why} takes {takes} steps, and from step {start} to its end at {atom.finish} it has {has}")
    return start + takes


def _fits(atom: Atom, capacity: Bundle | None) -> int:
    """How many bundles at once; at least its gang."""
    most = atom.parallelism
    if capacity is None:
        return most
    for name in capacity.__struct_fields__:
        wants, has = getattr(atom.bundle, name), getattr(capacity, name)
        if wants:
            most = min(most, int(has / wants + 1e-9))
            if most < atom.gang:
                raise _Cannot(f"{atom.gang} bundles at once want {atom.gang * wants:g} {name}; the cluster has {has:g}")
    return most
