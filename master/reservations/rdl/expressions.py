"""What a reservation asks for, as a tree (Rayon §3.1). Times are steps of the plan, durations numbers of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

Steps = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class RdlError(ValueError):
    """One line: where an expression is wrong, and what would do."""


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class Bundle(_Node, frozen=True, kw_only=True, tag=False):
    """The unit of allocation, b: what each of so many containers has."""

    cpu_cores: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    disk_bytes_per_s: Annotated[int, msgspec.Meta(ge=0)] = 0
    network_bytes_per_s: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def amounts(self) -> tuple[float, float, float, float]:
        """As a vector: cores, bytes/s, bytes/s, bytes."""
        return (self.cpu_cores, self.disk_bytes_per_s, self.network_bytes_per_s, self.memory_bytes)

    @staticmethod
    def of(amounts: Iterable[float]) -> Bundle:
        """Return the bundle of a vector; parts of bytes are left out."""
        cores, disk, network, memory = amounts
        return Bundle(
            cpu_cores=cores, disk_bytes_per_s=int(disk), network_bytes_per_s=int(network), memory_bytes=int(memory)
        )


class Atom(_Node, frozen=True):
    """``atom(b, g, h, l, w)``: at each step none or ``gang`` (g) to ``parallelism`` (h) bundles.

    Each bundle, once given, stays for ``lease`` (l) steps at least; together at least ``work`` (w) bundle-steps (the
    paper wants exactly so many, which leases and gangs may not allow; what asks for none is given none).

    ``start`` and ``finish`` (None: any time) bound where it may be, as a window around it does.
    """

    bundle: Bundle
    gang: Count
    parallelism: Count
    lease: Count
    work: Steps
    start: Steps | None = None
    finish: Steps | None = None


class Any(_Node, frozen=True):
    """Satisfied if one of its parts is."""

    parts: tuple[Expression, ...]


class All(_Node, frozen=True):
    """Satisfied if all of its parts are."""

    parts: tuple[Expression, ...]


class Order(_Node, frozen=True):
    """Satisfied if each part is, with allocations that strictly precede those of the parts behind it.

    ``no_gap``: each begins in the very step in which the one before it ends (beyond the paper).
    """

    parts: tuple[Expression, ...]
    no_gap: bool = False


class Window(_Node, frozen=True):
    """Satisfied if its part is, with allocations within [``start``, ``finish``)."""

    part: Expression
    start: Steps
    finish: Steps


Expression = Atom | Any | All | Order | Window


class Request(_Node, frozen=True, kw_only=True, tag=False):
    """An expression, and how often it is meant (beyond the paper).

    ``every`` (steps; None: once): again each so many steps, its windows with it; no turn begins ``until`` a step or
    later, if that is said. ``base`` is the step from which periods are counted: the one in which the request was made
    where a window is relative to that, else 0.
    """

    expression: Expression
    every: Count | None = None
    until: Steps | None = None
    base: Steps = 0


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """What it is made of; an atom of nothing."""
    if isinstance(expression, Atom):
        return ()
    return (expression.part,) if isinstance(expression, Window) else expression.parts


def atoms_of(expression: Expression) -> Iterator[Atom]:
    """Its atoms from left to right; equal ones as often as they stand there."""
    if isinstance(expression, Atom):
        yield expression
    for part in parts_of(expression):
        yield from atoms_of(part)
