"""PURE. The least that an atom can be given in what is free, for atoms so small that every allocation can be tried.

Greedy blocks give more than that where few steps have room: bundles that come and go by turns are no block. Three, four
and three bundles keep a lease of two steps, where one comes at the second step and another one goes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import repeat
from math import comb

from master.reservations.rdl import Atom, Bundle
from master.reservations.shapes import given, shape

#: How long bundles have to stay: ``state[0]`` of them may go at once, ``state[k]`` in k steps.
_State = tuple[int, ...]
#: The amounts that may have been given when a state is reached: bit n stands for n bundle-steps.
_Layer = dict[_State, int]
#: More states at a step, and more steps with room, are not tried.
_STATES, _STEPS = 130, 48


def small(atom: Atom) -> bool:
    """Return whether all there is can be tried for the atom."""
    return comb(atom.parallelism + min(atom.lease, _STATES), atom.parallelism) <= _STATES


@lru_cache(1024)
def least_anywhere(gang: int, parallelism: int, lease: int, work: int) -> int:
    """Return the least that a small atom can be given where all of it has room."""
    atom = Atom(Bundle(), gang, parallelism, lease, work)
    most = given(shape(work, gang, gang, lease))
    heights = least(atom, repeat(parallelism, lease + -(-work // gang)), work, most)
    return sum(heights) if heights else most


def least(atom: Atom, rooms: Iterable[int], enough: int, below: int) -> list[int] | None:
    """Return the bundles of each step with the smallest sum, if it is less than ``below``; the fewest steps of these.

    Args:
        rooms: how many bundles have room in each step, from the edge on at which the atom is placed.
        enough: bundle-steps; no smaller sum is possible.
        below: bundle-steps.

    Returns:
        Bundles, from the edge on; None if nothing gives less.
    """
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
    """Return the numbers of bundles that a step can have, each with the state after it; who came first goes first."""
    return tuple(_each_move(state, gang, room))


def _each_move(state: _State, gang: int, room: int) -> Iterator[tuple[int, _State]]:
    numbers = (0, *range(gang, room + 1))
    if len(state) == 1:  # with a lease of one step all may go after each: one state is enough
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
    """Return what can be reached with one step more, as far as less than ``below`` is given."""
    mask, found = (1 << below) - 1, _Layer()
    for state, sums in layer.items():
        for number, then in _moves(state, gang, room):
            if more := sums << number & mask:
                found[then] = found.get(then, 0) | more
    return found


def _least_given(layer: _Layer, work: int) -> int:
    """Return the least amount of at least ``work`` at which all bundles may go; a large one if there is none."""
    ended = 0
    for state, sums in layer.items():
        if not any(state[1:]):
            ended |= sums >> work
    return work + (ended & -ended).bit_length() - 1 if ended else 1 << 62


def _heights(layers: list[_Layer], gang: int, rooms: list[int], given: int) -> list[int]:
    """Walk back from the last step, with as few bundles as possible there, to how the amount came about."""
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
