"""PURE. The shapes in which an atom's work is given: exactly so much, or the least above it that lease and gang need.

A shape is a list of (steps, bundles) from the edge at which the atom is placed outwards. Its bundles never become more
on the way: each of them comes (or goes) at the edge, so the first part keeps the lease of all.
"""

from __future__ import annotations

from collections.abc import Iterable

Shape = list[tuple[int, int]]
#: So many numbers of bundles are looked at for one that needs no more than the work.
_TRIES = 256


def shape(work: int, number: int, gang: int, lease: int) -> Shape:
    """Return ``number`` bundles for as long as there is work for all of them, and fewer for the rest of it."""
    least = number * lease
    if number == gang or work <= least:
        return [(max(lease, -(-work // number)), number)]
    beyond = -(-(work - least) // number)  # steps beyond the lease, each of a gang at least
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
    """Return shapes of some of these numbers of bundles: those that give least first, then in the order of numbers."""
    if numbers and given(first := shape(work, numbers[0], gang, lease)) == work:
        return [first]  # without gangs always so, if the work is a lease's at least
    return sorted((shape(work, number, gang, lease) for number in numbers[:_TRIES]), key=given)
