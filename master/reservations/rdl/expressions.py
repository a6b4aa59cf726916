"""A reservation request as a tree (Rayon §3.1). Times are steps of the plan, durations numbers of steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from penstock.model.resource_vector import ResourceVector

Steps = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class RdlError(ValueError):
    """One line: the place of an error in an expression, and a remedy."""


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class Bundle(_Node, frozen=True, kw_only=True, tag=False):
    """The unit of allocation, b: the resources of one container."""

    cpu_cores: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    disk_bytes_per_s: Annotated[int, msgspec.Meta(ge=0)] = 0
    network_bytes_per_s: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def amounts(self) -> ResourceVector:
        """Return the bundle as a vector."""
        return ResourceVector(self.cpu_cores, self.disk_bytes_per_s, self.network_bytes_per_s, self.memory_bytes)

    @staticmethod
    def of(amounts: Iterable[float]) -> Bundle:
        """Return the bundle of a vector; parts of bytes are left out."""
        cores, disk, network, memory = amounts
        return Bundle(
            cpu_cores=cores, disk_bytes_per_s=int(disk), network_bytes_per_s=int(network), memory_bytes=int(memory)
        )


class Atom(_Node, frozen=True):
    """``atom(b, g, h, l, w)``: at each step either no bundle or ``gang`` (g) to ``parallelism`` (h) bundles.

    Each bundle, once given, stays for at least ``lease`` (l) steps; together they give at least ``work`` (w)
    bundle-steps. (The paper requires exactly w, which leases and gangs may not allow; an atom without work is given
    nothing.) ``start`` and ``finish`` (None: any time) bound its time, like a window around it.
    """

    bundle: Bundle
    gang: Count
    parallelism: Count
    lease: Count
    work: Steps
    start: Steps | None = None
    finish: Steps | None = None


class Any(_Node, frozen=True):
    """Satisfied if one of its parts is satisfied."""

    parts: tuple[Expression, ...]


class All(_Node, frozen=True):
    """Satisfied if all of its parts are satisfied."""

    parts: tuple[Expression, ...]


class Order(_Node, frozen=True):
    """Satisfied if each part is satisfied, with allocations strictly before those of later parts.

    ``no_gap``: each part begins in the step in which the one before it ends (beyond the paper).
    """

    parts: tuple[Expression, ...]
    no_gap: bool = False


class Window(_Node, frozen=True):
    """Satisfied if its part is satisfied, with allocations within [``start``, ``finish``)."""

    part: Expression
    start: Steps
    finish: Steps


Expression = Atom | Any | All | Order | Window


class Request(_Node, frozen=True, kw_only=True, tag=False):
    """An expression, and its recurrence (beyond the paper).

    ``every`` (steps; None: once) repeats it with its windows after each period; no turn begins in step ``until`` or
    later, if given. ``base`` is the step from which periods are counted: the step of the request where a window is
    relative to that, else 0.
    """

    expression: Expression
    every: Count | None = None
    until: Steps | None = None
    base: Steps = 0


def atoms_of(expression: Expression) -> Iterator[Atom]:
    """Yield its atoms from left to right, with repetitions."""
    match expression:
        case Atom():
            yield expression
        case Window(part):
            yield from atoms_of(part)
        case Any(parts) | All(parts) | Order(parts):
            for part in parts:
                yield from atoms_of(part)


def bounds_of(expression: Expression, first: int, last: int) -> tuple[int, int]:
    """Return the bounds in [first, last) of an expression in its normal form, whose atoms have all its bounds."""
    atoms = list(atoms_of(expression))
    finishes = (last if atom.finish is None else atom.finish for atom in atoms)
    return max(first, min(atom.start or 0 for atom in atoms)), min(last, max(finishes))
