"""Check a dataflow before it is planned; every fault is one line that names the operation (Ursa §4.1.1).

Checking settles two things that authors leave open: the *version* of a dataset that an operation reads (each operation
that creates or updates a dataset makes a version), and the part of it that a monotask takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model.resources import ResourceKind
from penstock.model.units import counted
from penstock.opgraph.ops import Data, Dependency, Op, OpGraph, OpGraphError, Take
from penstock.opgraph.order import CircleError, in_order


@dataclass(frozen=True, slots=True)
class Version:
    """A dataset after one operation, or as given to the job if ``writer`` is None."""

    index: int
    data: Data
    writer: Op | None


@dataclass(frozen=True, slots=True)
class Input:
    """The input of an operation: a version by its index, and the partitions of it that a monotask takes."""

    version: int
    take: Take


@dataclass(frozen=True, slots=True)
class CheckedOp:
    """An operation with its inputs and outputs settled."""

    op: Op
    partitions: int
    inputs: tuple[Input, ...]  # in the order in which its function gets them
    outputs: tuple[int, ...]  # versions, in the order in which its function returns them


@dataclass(frozen=True, slots=True)
class CheckedGraph:
    """A checked graph. ``ops`` are in an order in which they can run."""

    ops: tuple[CheckedOp, ...]
    versions: tuple[Version, ...]
    parts: dict[int, int]  # version → the number of parts of its partitions, if an operation takes parts

    def last(self, data: Data) -> Version:
        """Return the version of a dataset after its last operation.

        Raises:
            OpGraphError: no operation creates or updates it.
        """
        found = [version for version in self.versions if version.data is data and version.writer is not None]
        if not found:
            raise OpGraphError(f"dataset {data.name!r} is wanted, but no operation creates it")
        return found[-1]


def check(graph: OpGraph) -> CheckedGraph:
    """Check a graph, and settle the versions and parts that its author left open.

    Raises:
        OpGraphError: the fault, in one line.
    """
    if not graph.ops:
        raise OpGraphError("there is no operation to carry out")
    try:
        order = in_order({op: op.before for op in graph.ops})
    except CircleError as error:
        circle = " → ".join(op.name for op in error.circle)
        raise OpGraphError(f"operations depend on each other in a circle: {circle}") from None
    before = _ancestors(order)
    for op in order:
        _check_shape(op)
    versions = _versions(graph, order, before)
    checked = tuple(_settle(op, versions, before) for op in order)
    return CheckedGraph(checked, tuple(versions), _parts(checked, versions))


def _ancestors(order: Iterable[Op]) -> dict[Op, int]:
    """Return, for each operation, all operations before it, as the bits of a number."""
    found: dict[Op, int] = {}
    for op in order:
        found[op] = 0
        for other in op.before:
            found[op] |= found[other] | 1 << other.index
    return found


def _check_shape(op: Op) -> None:
    made = [*op.creates, *op.updates]
    touched = [*(data for data, _ in op.reads), *op.updates]
    if not made:
        raise OpGraphError(f"operation {op.name!r} neither creates nor updates a dataset")
    if len({data.partitions for data in made}) > 1:
        sizes = ", ".join(f"{data.name!r} {data.partitions}" for data in made)
        raise OpGraphError(f"operation {op.name!r} makes datasets of different numbers of partitions: {sizes}")
    if op.kind is not ResourceKind.CPU and (len(touched) != 1 or len(op.creates) != 1 or op.updates):
        raise OpGraphError(f"operation {op.name!r}: a {op.kind} operation reads one dataset and creates one")
    if op.kind is not ResourceKind.NETWORK and op.function is None:
        what = "set_udf" if op.kind is ResourceKind.CPU else "set_access"
        raise OpGraphError(f"operation {op.name!r}: a {op.kind} operation needs its function ({what})")
    for other, dependency in op.before.items():
        ours, theirs = made[0].partitions, _partitions(other)
        if dependency is Dependency.ASYNC and ours != theirs:
            raise OpGraphError(
                f"operation {op.name!r} has {counted(ours, 'partition')} and {other.name!r} {theirs}: "
                "an async dependency is one to one; use sync"
            )


def _partitions(op: Op) -> int:
    return next((data.partitions for data in [*op.creates, *op.updates]), 0)


def _versions(graph: OpGraph, order: list[Op], before: dict[Op, int]) -> list[Version]:
    """Return the versions of each dataset, oldest first."""
    inputs = [data for data in graph.data if data.content is not None]
    versions = [Version(index, data, None) for index, data in enumerate(inputs)]
    written: dict[Data, list[Op]] = {}
    for op in order:
        for data in op.creates:
            if written.get(data):
                raise OpGraphError(
                    f"operation {op.name!r}: {data.name!r} is created by {written[data][0].name!r} already"
                )
        for data in (*op.creates, *op.updates):
            earlier = written.setdefault(data, [])
            if not earlier and data.content is None and data not in op.creates:
                raise OpGraphError(f"operation {op.name!r} updates {data.name!r} before any operation creates it")
            if earlier and not _comes_before(earlier[-1], op, before):
                raise OpGraphError(f"operation {op.name!r} and {earlier[-1].name!r} update {data.name!r} in no order")
            earlier.append(op)
            versions.append(Version(len(versions), data, op))
    return versions


def _comes_before(one: Op, other: Op, before: dict[Op, int]) -> bool:
    return bool(before[other] >> one.index & 1)


def _settle(op: Op, versions: list[Version], before: dict[Op, int]) -> CheckedOp:
    partitions = _partitions(op)
    inputs = []
    for data, asked in [*op.reads, *((data, Take.OWN) for data in op.updates)]:
        version = _version_read(op, data, versions, before)
        barrier = version.writer is not None and op.before.get(version.writer) is Dependency.SYNC
        take = asked or (Take.PART if op.kind is ResourceKind.NETWORK and barrier else Take.OWN)
        _check_take(op, version, take, partitions, barrier=barrier)
        inputs.append(Input(version.index, take))
    outputs = tuple(
        version.index
        for data in (*op.creates, *op.updates)
        for version in versions
        if version.data is data and version.writer is op
    )
    return CheckedOp(op, partitions, tuple(inputs), outputs)


def _version_read(op: Op, data: Data, versions: list[Version], before: dict[Op, int]) -> Version:
    found: Version | None = None
    for version in versions:
        writer = version.writer
        if version.data is not data or writer is op:
            continue
        if writer is None or _comes_before(writer, op, before):
            found = version  # versions are in order, so the last match is the newest
        elif not _comes_before(op, writer, before):
            raise OpGraphError(
                f"operation {op.name!r} reads {data.name!r}, which {writer.name!r} makes; "
                f"say {writer.name}.to({op.name}) or {op.name}.to({writer.name})"
            )
    if found is None:
        raise OpGraphError(f"operation {op.name!r} reads {data.name!r}, which no operation before it creates")
    if found.writer is not None and found.writer not in op.before:
        raise OpGraphError(
            f"operation {op.name!r} reads {data.name!r} of {found.writer.name!r}; say {found.writer.name}.to({op.name})"
        )
    return found


def _check_take(op: Op, version: Version, take: Take, partitions: int, *, barrier: bool) -> None:
    name, theirs = version.data.name, version.data.partitions
    if take is Take.OWN and partitions != theirs:
        raise OpGraphError(
            f"operation {op.name!r} has {counted(partitions, 'partition')}, but {name!r}, "
            f"of which each takes its own, {theirs}"
        )
    if take is Take.PART and version.writer is None:
        raise OpGraphError(f"operation {op.name!r} takes parts of {name!r}, an input; an operation must make the parts")
    if take is not Take.OWN and version.writer is not None and not barrier:
        raise OpGraphError(
            f"operation {op.name!r} takes from every partition of {name!r}: its dependency on "
            f"{version.writer.name!r} must be sync"
        )


def _parts(checked: tuple[CheckedOp, ...], versions: list[Version]) -> dict[int, int]:
    parts: dict[int, int] = {}
    for one in checked:
        for read in one.inputs:
            if read.take is Take.PART and parts.setdefault(read.version, one.partitions) != one.partitions:
                raise OpGraphError(
                    f"operation {one.op.name!r} takes {counted(one.partitions, 'part')} of "
                    f"{versions[read.version].data.name!r}, "
                    f"and another operation {parts[read.version]}"
                )
    return parts
