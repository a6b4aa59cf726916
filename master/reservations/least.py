"""PURE. The least amount that an atom can be given in the free capacity, by trying all allocations of small atoms.

Greedy blocks give more where few steps have room, because alternating bundles form no block. For example, heights of
three, four and three keep a lease of two steps if one bundle comes at the second step and another leaves after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import repeat
from math import comb

from master.reservations.rdl import Atom, Bundle
from master.reservations.shapes import given, shape

#: Remaining stay of bundles: ``state[0]`` of them may leave at once, ``state[k]`` in k steps.
_State = tuple[int, ...]
#: The amounts that may have been given when a state is reached: bit n stands for n bundle-steps.
_Layer = dict[_State, int]
#: Bounds on the states at a step, and on the steps with room.
_STATES, _STEPS = 130, 48


def small(atom: Atom) -> bool:
    """Return whether all allocations of the atom can be tried."""
    return comb(atom.parallelism + min(atom.lease, _STATES), atom.parallelism) <= _STATES


@lru_cache(1024)
def least_anywhere(gang: int, parallelism: int, lease: int, work: int) -> int:
    """Return the least amount for a small atom with unlimited room."""
    atom = Atom(Bundle(), gang, parallelism, lease, work)
    most = given(shape(work, gang, gang, lease))
    heights = least(atom, repeat(parallelism, lease + -(-work // gang)), work, most)
    return sum(heights) if heights else most


def least(atom: Atom, rooms: Iterable[int], enough: int, below: int) -> list[int] | None:
    """Return the bundles of each step with the smallest sum, if it is below ``below``; of equal sums, the fewest steps.

    Args: rooms: number of bundles that fit in each step, from the edge at which the atom is placed. enough:
    bundle-steps; no smaller sum is possible. below: bundle-steps.

    Returns: Bundles, from the edge on; None if nothing gives less.
    """
    if atom.work > _STEPS * atom.parallelism:
        return None  # and the bits of an amount are too many
    layers: list[_Layer] = [{(0,) * atom.lease: 1}]
    taken, tried, ends, best = list[int](), 0, 0, below
    for room in rooms:
        if tried == _STEPS or best == enough:
            break
        tried += room >= atom.gang
        taken.append(room)
        layers.append(_next(layers[-1], atom.gang, taken[-1], best))
        if (total := _least_given(layers[-1], atom.work)) < best:
            ends, best = len(taken), total
    return _heights(layers[: ends + 1], atom.gang, taken, best) if ends else None


@lru_cache(4096)
def _moves(state: _State, gang: int, room: int) -> tuple[tuple[int, _State], ...]:
    """Return the possible numbers of bundles of a step, each with the next state; bundles leave in order of arrival."""
    return tuple(_each_move(state, gang, room))


def _each_move(state: _State, gang: int, room: int) -> Iterator[tuple[int, _State]]:
    numbers = (0, *range(gang, room + 1))
    if len(state) == 1:  # with a lease of one step all may leave after each step: one state is enough
        yield from ((number, state) for number in numbers)
        return
    held, free = sum(state), state[0]
    aged = (state[0] + state[1], *state[2:], 0)
    for number in numbers:
        if number >= held:
            yield number, (*aged[:-1], aged[-1] + number - held)
        elif held - number <= free:
            yield number, (aged[0] - (held - number), *aged[1:])


def _next(layer: _Layer, gang: int, room: int, below: int) -> _Layer:
    """Return the states reachable with one more step and less than ``below`` given."""
    mask, found = (1 << below) - 1, _Layer()
    for state, sums in layer.items():
        for number, then in _moves(state, gang, room):
            if more := sums << number & mask:
                found[then] = found.get(then, 0) | more
    return found


def _least_given(layer: _Layer, work: int) -> int:
    """Return the least amount of at least ``work`` at which all bundles may leave; a large number if there is none."""
    ended = 0
    for state, sums in layer.items():
        if not any(state[1:]):
            ended |= sums >> work
    return work + (ended & -ended).bit_length() - 1 if ended else 1 << 62


def _heights(layers: list[_Layer], gang: int, rooms: list[int], given: int) -> list[int]:
    """Trace back how the amount arose, with as few bundles as possible in the last steps."""
    state = next(each for each, sums in layers[-1].items() if sums >> given & 1 and not any(each[1:]))
    heights = list[int]()
    for layer, room in zip(layers[-2::-1], reversed(rooms[: len(layers) - 1]), strict=True):
        number, state = min(
            (number, before)
            for before, sums in layer.items()
            for number, then in _moves(before, gang, room)
            if then == state and number <= given and sums >> (given - number) & 1
        )
        given -= number
        heights.append(number)
    return heights[::-1]
