"""GREE in a plan of lists and quotients, against GREE as it reads: whole bundles, run by run."""

from __future__ import annotations

from itertools import groupby, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from master.reservations.gree import Gree
from master.reservations.least import least, least_anywhere, small
from master.reservations.least_solved import least_solved
from master.reservations.plan import Piece, Plan
from master.reservations.rdl import Atom, Bundle
from master.reservations.shapes import Shape, shape, shapes
from master.reservations.shapes import given as given_by

_Run = tuple[int, int, int]
_BUNDLES = (Bundle(cpu_cores=1.0), Bundle(cpu_cores=2.0, memory_bytes=3), Bundle(memory_bytes=2, disk_bytes_per_s=1))
_ATOMS = st.builds(
    lambda bundle, gang, more, lease, work, start, length: Atom(
        bundle, gang, gang + more, lease, work, start, start + length
    ),
    st.sampled_from(_BUNDLES), st.integers(1, 3), st.integers(0, 6), st.integers(1, 7), st.integers(1, 60),
    st.integers(0, 30), st.integers(1, 40),
)  # fmt: skip


def runs(plan: Plan, atom: Atom, low: int, high: int, own: list[Piece]) -> list[_Run]:
    """From the right edge on: how many bundles have room, and with ``own`` are no more than the atom may have."""
    marks = {low, high, *plan.free.starts, *(mark for piece in own for mark in (piece.start, piece.finish))}
    cut, found = sorted(mark for mark in marks if low <= mark <= high), list[_Run]()
    for start, finish in pairwise(cut):
        held = sum(piece.number for piece in own if piece.start <= start < piece.finish)
        needs = zip(plan.free.at(start), atom.bundle.amounts, strict=True)
        room = min([atom.parallelism - held, *(int((has + 1e-6) / each) for has, each in needs if each)])
        found.append((start, finish, room))
    return found[::-1]


def block(atom: Atom, line: list[_Run], left: int) -> tuple[list[Piece], int] | None:
    """The first lease's length from the edge on in which a gang has room, stretched while there is work and room."""
    for first in range(len(line)):
        for last in range(first, len(line)):
            part = line[first : last + 1]
            if min(room for _, _, room in part) < atom.gang:
                break
            if part[0][1] - part[-1][0] >= atom.lease:
                return stretched(atom, part, line[first:], left)
    return None


def stretched(atom: Atom, part: list[_Run], line: list[_Run], left: int) -> tuple[list[Piece], int]:
    """As high as the lowest run of the lease lets it be; the next edge is that run's.

    No more than is left where any shape of it has room; else the least that the lease and the gang need.
    """
    height, ends = min(atom.parallelism, *(room for _, _, room in part), atom.parallelism), part[0][1]
    tall = max(atom.gang, -(-left // atom.lease))
    if tall <= height:
        best = [(atom.lease, tall)]
        for each in shapes(left, range(min(height, left // atom.lease), atom.gang - 1, -1), atom.gang, atom.lease):
            if given_by(each) < given_by(best) and has_room(each, line, atom.lease):
                best = each
        return pieces_of(best, ends, atom), 0
    begins, limited = ends - atom.lease, height < atom.parallelism
    wanted, rooms = ends - left // height, [part[-1][2], room_at(line, begins - 1)]
    while begins > wanted and min(rooms) >= height and not (limited and max(rooms) > height):
        begins -= 1
        rooms = [room_at(line, begins - 1)]
    if begins == wanted:
        for each in shapes(left, range(height, atom.gang - 1, -1), atom.gang, atom.lease):
            if has_room(each, line, atom.lease):
                return pieces_of(each, ends, atom), 0
    lowest = next((start for start, _, room in part if room == height), part[0][0])
    return [Piece(begins, ends, height, atom.bundle)], max(begins, lowest) if limited else begins


def room_at(line: list[_Run], step: int) -> int:
    return next((room for start, finish, room in line if start <= step < finish), -1)


def has_room(shape: Shape, line: list[_Run], lease: int) -> bool:
    """Whether there is room for it in each step; within the lease there is."""
    heights = [number for steps, number in shape for _ in range(steps)]
    edge = line[0][1]
    return all(room_at(line, edge - 1 - at) >= number for at, number in enumerate(heights) if at >= lease)


def pieces_of(shape: Shape, ends: int, atom: Atom) -> list[Piece]:
    found = []
    for steps, number in shape:
        found.append(Piece(ends - steps, ends, number, atom.bundle))
        ends -= steps
    return found


def placed(plan: Plan, atom: Atom) -> list[Piece] | None:
    """Taken in the plan if it fits: the least of those a little off the edge, of lower ones, and of a solver's."""
    assert atom.finish is not None
    first = at_the_edge(plan, atom)
    if first is not None and small(atom):
        return least_placed(plan, atom, first)
    numbers = range(atom.gang, atom.parallelism + 1)
    enough = min(given_by(shape(atom.work, n, atom.gang, atom.lease)) for n in numbers)
    if first is None or total(first) == enough:
        return first
    found = [first]
    for height in numbers[::-1][:4]:
        for off in range(min(2 * atom.lease, 4) + 1):
            for piece in found[-1]:
                plan.give_back(piece)
            other = at_the_edge(plan, replace(atom, parallelism=height, finish=atom.finish - off))
            found.append(other or [])
    for piece in found[-1]:
        plan.give_back(piece)
    best = min(filter(None, found), key=total)
    if total(best) > enough:
        heights = least_solved(atom, rooms(plan, atom), total(best))
        best = in_steps(atom, heights) if heights else best
    for piece in best:
        plan.take(piece)
    return best


def least_placed(plan: Plan, atom: Atom, first: list[Piece]) -> list[Piece]:
    """Return the allocation that gives least of all (test_least.py compares that with every allocation)."""
    if total(first) == least_anywhere(atom.gang, atom.parallelism, atom.lease, atom.work):
        return first
    for piece in first:
        plan.give_back(piece)
    enough = least_anywhere(atom.gang, atom.parallelism, atom.lease, atom.work)
    heights = least(atom, rooms(plan, atom), enough, total(first))
    best = in_steps(atom, heights) if heights else first
    for piece in best:
        plan.take(piece)
    return best


def rooms(plan: Plan, atom: Atom) -> list[int]:
    """The bundles that have room in each step from the right edge on."""
    assert atom.start is not None and atom.finish is not None
    return [room for start, finish, room in runs(plan, atom, atom.start, atom.finish, []) for _ in range(start, finish)]


def in_steps(atom: Atom, heights: list[int]) -> list[Piece]:
    """The pieces of so many bundles in each step from the right edge on."""
    assert atom.finish is not None
    shape = [(len(list(same)), height) for height, same in groupby(heights)]
    return [piece for piece in pieces_of(shape, atom.finish, atom) if piece.number]


def total(pieces: list[Piece]) -> int:
    return sum((piece.finish - piece.start) * piece.number for piece in pieces)


def at_the_edge(plan: Plan, atom: Atom) -> list[Piece] | None:
    """Taken in the plan if it fits."""
    assert atom.start is not None and atom.finish is not None
    left, high, pieces = atom.work, atom.finish, list[Piece]()
    while left > 0:
        found = block(atom, runs(plan, atom, atom.start, high, pieces), left) if high > atom.start else None
        if found is None:
            for piece in pieces:
                plan.give_back(piece)
            return None
        blocks, high = found
        for piece in blocks:
            plan.take(piece)
            pieces.append(piece)
            left -= (piece.finish - piece.start) * piece.number
    return pieces


@given(st.integers(0, 12), st.integers(0, 30), st.integers(0, 8), st.lists(_ATOMS, min_size=1, max_size=14))
@settings(max_examples=120)
def test_planning_fast_decides_as_planning_plainly_does(cores: int, memory: int, disk: int, atoms: list[Atom]) -> None:
    has = Bundle(cpu_cores=float(cores), memory_bytes=memory, disk_bytes_per_s=disk)
    fast, plain = Plan(has), Plan(has)
    planner = Gree(fast)
    for number, atom in enumerate(atoms):
        given_fast = planner.promise(f"r{number}", atom, 0, 100)
        given_plainly = placed(plain, atom)
        assert (None if given_fast is None else given_fast[0]) == given_plainly
        assert fast.free.starts == plain.free.starts
        assert fast.free.rows == plain.free.rows
