"""Check whether an empty cluster could satisfy a request, with the reason if not."""

from __future__ import annotations

from dataclasses import dataclass

from master.reservations.rdl.calendar import Wording
from master.reservations.rdl.expressions import All, Any, Atom, Bundle, Expression, Order, Window
from master.reservations.rdl.normal import normalized
from penstock.model.units import counted, format_bytes

_BYTES = {
    "memory_bytes": ("of memory", ""),
    "disk_bytes_per_s": ("of disk", "/s"),
    "network_bytes_per_s": ("of network", "/s"),
}


class _Cannot(Exception):  # noqa: N818 - it is an answer
    pass


def infeasible(
    expression: Expression, now: int = 0, capacity: Bundle | None = None, wording: Wording | None = None
) -> str:
    """Return why nothing can satisfy the expression from step ``now`` on, in one line; empty if something could.

    ``capacity`` is the cluster's largest capacity. Every reason is correct, but a request without one may still be
    impossible, where several parts together exceed the cluster.
    """
    try:
        _Earliest(capacity, wording or Wording()).end(normalized(expression), now)
    except _Cannot as reason:
        return str(reason)
    return ""


@dataclass(frozen=True, slots=True)
class _Earliest:
    capacity: Bundle | None
    wording: Wording

    def end(self, expression: Expression, since: int) -> int:
        """Return the earliest end of an expression that begins no sooner than ``since``."""
        match expression:
            case Atom():
                return self._atom(expression, since)
            case Window(part):
                return self.end(part, since)
            case All(parts):
                return max(self.end(part, since) for part in parts)
            case Order(parts):
                for part in parts:
                    since = self.end(part, since)
                return since
            case Any(parts):
                ends, reasons = [], []
                for part in parts:
                    try:
                        ends.append(self.end(part, since))
                    except _Cannot as reason:
                        reasons.append(str(reason))
                if not ends:
                    raise _Cannot("; or ".join(dict.fromkeys(reasons)))
                return min(ends)

    def _atom(self, atom: Atom, since: int) -> int:
        if not atom.work:
            return since
        most = self._fits(atom)
        start = max(since, atom.start or 0)
        takes = max(atom.lease, -(-atom.work // most))
        if atom.finish is not None and start + takes > atom.finish:
            words = self.wording
            begins, ends = words.time(start), words.time(atom.finish)
            if atom.finish <= start:
                raise _Cannot(f"its end at {ends} is not after {begins}, when it could begin; give it a later end")
            has = words.span(atom.finish - start)
            if takes == atom.lease:
                why = f"its lease takes {words.span(takes)}"
            else:
                work = (
                    counted(atom.work, "bundle-step")
                    if words.step_s is None
                    else f"{words.span(atom.work)} of a bundle"
                )
                why = f"{work} at {most} at once takes {words.span(takes)}"
            raise _Cannot(f"{why}, and from {begins} to its end at {ends} it has {has}")
        return start + takes

    def _fits(self, atom: Atom) -> int:
        """Return the number of bundles that fit at once; at least the gang."""
        most = atom.parallelism
        if self.capacity is None:
            return most
        for name in self.capacity.__struct_fields__:
            wants, has = getattr(atom.bundle, name), getattr(self.capacity, name)
            if wants:
                most = min(most, int(has / wants + 1e-9))
                if most < atom.gang:
                    wanted = _amount(name, atom.gang * wants)
                    said = "1 bundle wants" if atom.gang == 1 else f"{atom.gang} bundles at once want"
                    raise _Cannot(f"{said} {wanted}; the cluster has {_amount(name, has)}")
        return most


def _amount(resource: str, value: float) -> str:
    """Return an amount of a resource: ``4 cores``, ``8 GiB of memory``."""
    if resource == "cpu_cores":
        return counted(value, "core")
    of, per = _BYTES[resource]
    return f"{format_bytes(value)}{per} {of}" if value else f"nothing {of}"
