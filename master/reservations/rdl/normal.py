"""The normal form of a request, as used by planners (Rayon §3.1, "Compiling RDL").

Windows are pushed down to the atoms, nested operators of one kind are merged, equal atoms that accept any number of
bundles are merged, and choices are moved to the top while they are few. An allocation satisfies an expression if and
only if it satisfies its normal form.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice, product

from msgspec.structs import replace

from master.reservations.rdl.expressions import All, Any, Atom, Expression, Order, Window, atoms_of

#: With more alternatives, choices stay in place.
MOST_ALTERNATIVES = 16


def normalized(expression: Expression) -> Expression:
    """Return the normal form of an expression."""
    pushed = _pushed(expression, None, None)
    choices = alternatives(pushed, MOST_ALTERNATIVES)
    if choices is None:
        return _flat(pushed)
    flat = list(dict.fromkeys(map(_flat, choices)))
    return flat[0] if len(flat) == 1 else Any(tuple(flat))


def alternatives(expression: Expression, most: int) -> list[Expression] | None:
    """Return the alternatives, each without a choice, in order of preference; None where there are more than ``most``.

    ``any`` distributes over the others: any(all(a, c), all(b, c)) is all(any(a, b), c).
    """
    match expression:
        case Atom():
            return [expression]
        case Window(part):
            inner = alternatives(part, most)
            return None if inner is None else [replace(expression, part=each) for each in inner]
        case Any(parts):
            found: list[Expression] = []
            for part in parts:
                inner = alternatives(part, most)
                if inner is None or len(found) + len(inner) > most:
                    return None
                found += inner
            return found
        case All(parts) | Order(parts):
            choices = [alternatives(part, most) for part in parts]
            known = [each for each in choices if each is not None]
            if len(known) < len(choices):
                return None
            combined = list(islice(product(*known), most + 1))
            return None if len(combined) > most else [replace(expression, parts=each) for each in combined]


def _pushed(expression: Expression, start: int | None, finish: int | None) -> Expression:
    """Return the expression without windows: each atom is bounded by the intersection of those around it."""
    match expression:
        case Atom(start=own_start, finish=own_finish):
            first, last = _both(start, finish, own_start, own_finish)
            return replace(expression, start=first, finish=last)
        case Window(part, own_start, own_finish):
            return _pushed(part, *_both(start, finish, own_start, own_finish))
        case Any(parts) | All(parts) | Order(parts):
            return replace(expression, parts=tuple(_pushed(part, start, finish) for part in parts))


def _both(start: int | None, finish: int | None, other: int | None, end: int | None) -> tuple[int | None, int | None]:
    starts = [each for each in (start, other) if each is not None]
    finishes = [each for each in (finish, end) if each is not None]
    return max(starts, default=None), min(finishes, default=None)


def _flat(expression: Expression) -> Expression:
    """Merge nested operators of one kind, and drop void atoms, which need no allocation."""
    if isinstance(expression, Atom | Window):
        return expression
    parts: list[Expression] = []
    for part in map(_flat, expression.parts):
        if not isinstance(part, Atom | Window) and _same_kind(part, expression):
            parts += part.parts
        elif isinstance(expression, Any) or not isinstance(part, Atom) or part.work:
            parts.append(part)
    if isinstance(expression, All):
        parts = _unified(parts)
    elif isinstance(expression, Any):
        parts = list(dict.fromkeys(parts))
    if not parts:
        return next(iter(atoms_of(expression)))
    return parts[0] if len(parts) == 1 else replace(expression, parts=tuple(parts))


def _same_kind(part: Expression, outer: Any | All | Order) -> bool:
    if isinstance(part, Order) and isinstance(outer, Order):
        return part.no_gap == outer.no_gap
    return type(part) is type(outer)


def _unified(parts: list[Expression]) -> list[Expression]:
    """Merge equal atoms that accept any number of bundles at any time into one: k · h bundles for k · w.

    This is equivalent because that many bundles can be dealt out evenly in turn: no atom gets more than h at a time,
    and each gets w. With gangs or leases it would not be equivalent.
    """
    counts = Counter(parts)
    unified: list[Expression] = []
    for part, count in counts.items():
        if isinstance(part, Atom) and part.gang == 1 and part.lease == 1:
            unified.append(replace(part, parallelism=count * part.parallelism, work=count * part.work))
        else:
            unified += [part] * count
    # Merged atoms may equal another part: merge again.
    return unified if len(unified) == len(parts) else _unified(unified)
