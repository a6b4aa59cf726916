"""PURE. Shapes of an atom's work: exactly the work, or the least excess that lease and gang require.

A shape is a list of (steps, bundles) from the edge at which the atom is placed outwards. The number of bundles never
increases along it: each bundle begins (or ends) at the edge, so the first part keeps the lease of all.
"""

from __future__ import annotations

from collections.abc import Iterable

Shape = list[tuple[int, int]]
#: Number of candidates examined for a shape without excess.
_TRIES = 256


def shape(work: int, number: int, gang: int, lease: int) -> Shape:
    """Return a shape of ``number`` bundles while all of them have work, and fewer for the rest."""
    least = number * lease
    if number == gang or work <= least:
        return [(max(lease, -(-work // number)), number)]
    beyond = -(-(work - least) // number)  # steps beyond the lease, each with at least a gang
    more = max(0, work - least - beyond * gang)
    full, part = divmod(more, number - gang)
    parts = [(lease + full, number), (min(1, part), gang + part), (beyond - full - min(1, part), gang)]
    return [(steps, bundles) for steps, bundles in parts if steps]


def given(shape: Shape) -> int:
    """Return the bundle-steps of a shape."""
    return sum(steps * number for steps, number in shape)


def steps_of(shape: Shape) -> int:
    """Return the steps of a shape."""
    return sum(steps for steps, _ in shape)


def shapes(work: int, numbers: range, gang: int, lease: int) -> Iterable[Shape]:
    """Return shapes for some of these numbers of bundles: least excess first, then in the order of numbers."""
    if numbers and given(first := shape(work, numbers[0], gang, lease)) == work:
        return [first]  # without gangs always exact, if the work is at least a lease's
    return sorted((shape(work, number, gang, lease) for number in numbers[:_TRIES]), key=given)
