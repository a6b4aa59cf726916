"""A walk as text: its calls as a tree, process by process, and a line with its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.walk.flows import Walk
from tests.walk.tracer import Call

_NOTE = (
    "The daemons' own objects in one process, over their own sockets. Stand-ins: the files of cgroups (the fake of\n"
    "tests/contract), and the launcher, which starts nothing. (…) is the next step of a coroutine, not counted again."
)


@dataclass(frozen=True)
class Figures:
    """The numbers of a walk, or of one process in it."""

    calls: int
    functions: int
    files: int

    def __str__(self) -> str:
        return f"{self.calls} calls, {self.functions} functions, {self.files} files"


def figures(calls: Iterable[Call]) -> Figures:
    """Count calls; the next steps of coroutines are not counted."""
    counted = [call for call in calls if not call.resumed]
    return Figures(len(counted), len({call.name for call in counted}), len({call.path for call in counted}))


def sides(walk: Walk) -> list[str]:
    """Return the processes in the order in which the flow reaches them."""
    return list(dict.fromkeys(call.side for call in walk.calls))


def tree(walk: Walk) -> str:
    """Return the calls as an indented tree, one process after the other."""
    return "\n".join([_NOTE, *(line for side in sides(walk) for line in _side(walk, side)), ""])


def _side(walk: Walk, side: str) -> Iterator[str]:
    calls = walk.of(side)
    yield f"\n{side}: {figures(calls)}"
    for call in calls:
        yield "  " * (call.depth + 1) + (f"({call.name})" if call.resumed else call.name)


def summary(flow: str, walk: Walk) -> str:
    """Return the figures of a walk in one line."""
    parts = "; ".join(f"{side}: {figures(walk.of(side))}" for side in sides(walk))
    hops = f"; {walk.hops} hops from Cgroup.confine to the write" if walk.hops is not None else ""
    return f"{flow}: {figures(walk.calls)} ({parts}){hops}"
