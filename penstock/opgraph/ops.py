"""A dataflow as its author writes it: datasets, operations on one kind of resource each, dependencies (Ursa §4.1.1).

>>> graph = OpGraph()
>>> messages, shuffled, result = graph.create_data(4), graph.create_data(2), graph.create_data(2)

An operation is carried out on every partition of the dataset that it creates. Its :class:`Take` is the choice of
partitions that one of its monotasks gets of a dataset that it *reads*.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from penstock.model.resources import ResourceKind
from penstock.model.units import counted


class OpGraphError(ValueError):
    """A dataflow that cannot be executed. The message is one line that names the operation."""


class Dependency(enum.StrEnum):
    """The condition for an operation to follow another one (§4.1.1)."""

    SYNC = "sync"  # a barrier: after every partition of the other operation
    ASYNC = "async"  # on each partition as soon as the other operation has finished that partition


class Take(enum.StrEnum):
    """The partitions that the monotask of partition *i* gets of a dataset that its operation reads."""

    OWN = "own"  # partition i
    PART = "part"  # part i of every partition, in their order: a shuffle; the partitions are sequences of parts
    WHOLE = "whole"  # every partition, in their order: a broadcast or a gathering


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A dataset in partitions (§4.1.1). A dataset with ``content`` is an input of the job: no operation creates it.

    ``content`` has one value per partition, which only the engine interprets; ``sizes_bytes`` has each partition's
    size for the operation that reads it.
    """

    index: int
    name: str
    partitions: int
    content: tuple[object, ...] | None = None
    sizes_bytes: tuple[int, ...] = ()


class Op:
    """An operation on one kind of resource, made by :meth:`OpGraph.create_op`. Its methods return it, for chaining."""

    def __init__(self, graph: OpGraph, index: int, kind: ResourceKind, name: str) -> None:
        self.index = index
        self.kind = kind
        self.name = name
        self.reads: list[tuple[Data, Take | None]] = []  # None: the dependency decides the take
        self.creates: list[Data] = []
        self.updates: list[Data] = []
        self.before: dict[Op, Dependency] = {}
        self.function: Callable[..., Any] | None = None
        self.memory_to_input: float | None = None
        self.expansion = 1.0
        self._graph = graph

    def __repr__(self) -> str:
        return f"<{self.kind} operation {self.name!r}>"

    def read(self, data: Data, take: Take | None = None) -> Self:
        """Read a dataset. The default take is :attr:`Take.PART` for a network operation behind a barrier, else ``OWN``.

        Raises:
            OpGraphError: the dataset is of another graph.
        """
        self._own(data)
        self.reads.append((data, take))
        return self

    def create(self, data: Data) -> Self:
        """Create a dataset; the operation gets one monotask per partition of it.

        Raises:
            OpGraphError: the dataset is of another graph, or an input.
        """
        self._own(data)
        if data.content is not None:
            raise OpGraphError(f"operation {self.name!r} creates {data.name!r}, which is an input of the job")
        self.creates.append(data)
        return self

    def update(self, data: Data) -> Self:
        """Replace each partition of a dataset; the function gets the old partition after the values that it reads.

        Raises:
            OpGraphError: the dataset is of another graph.
        """
        self._own(data)
        self.updates.append(data)
        return self

    def set_udf(self, function: Callable[..., Any]) -> Self:
        """Set the function of a CPU operation: values of read and updated data → values of created and updated data.

        One value is returned as it is, several as a tuple, in the order of ``create`` and then ``update``.

        Raises:
            OpGraphError: this is no CPU operation.
        """
        if self.kind is not ResourceKind.CPU:
            raise OpGraphError(f"operation {self.name!r}: only a CPU operation computes; this one is {self.kind}")
        self.function = function
        return self

    def set_access(self, function: Callable[[Any], Any]) -> Self:
        """Set the function of a disk operation: the value that it reads → the value that it creates.

        Raises:
            OpGraphError: this is no disk operation.
        """
        if self.kind is not ResourceKind.DISK:
            raise OpGraphError(f"operation {self.name!r}: only a disk operation accesses a disk; this is {self.kind}")
        self.function = function
        return self

    def estimate(self, *, memory_to_input: float | None = None, expansion: float | None = None) -> Self:
        """Set this operation's parameters for the estimates of §4.2.1.

        ``memory_to_input`` is m2i, memory ÷ input size (2 for a filter, 1 + selectivity for a join); ``expansion`` is
        output ÷ input size, for data that is stored compressed.

        Raises:
            OpGraphError: a value is no positive number.
        """
        for what, value in (("memory_to_input", memory_to_input), ("expansion", expansion)):
            if value is not None and not 0 < value < float("inf"):
                raise OpGraphError(f"operation {self.name!r}: {what} must be a positive number, not {value}")
        self.memory_to_input = self.memory_to_input if memory_to_input is None else memory_to_input
        self.expansion = self.expansion if expansion is None else expansion
        return self

    def to(self, after: Op, dependency: Dependency | str = Dependency.ASYNC) -> Op:
        """Make ``after`` depend on this operation; return ``after``, for chaining.

        Raises:
            OpGraphError: ``after`` depends on it already, is this one, or is of another graph; or no such dependency.
        """
        if not self._graph.has(after):
            raise OpGraphError(f"operation {after.name!r} is of another graph than {self.name!r}")
        if after is self:
            raise OpGraphError(f"operation {self.name!r} cannot depend on itself")
        if self in after.before:
            raise OpGraphError(f"operation {after.name!r} depends on {self.name!r} already")
        try:
            after.before[self] = Dependency(dependency)
        except ValueError:
            raise OpGraphError(
                f"operation {self.name!r}: a dependency is 'sync' or 'async', not {dependency!r}"
            ) from None
        return after

    def _own(self, data: Data) -> None:
        if not self._graph.has(data):
            raise OpGraphError(f"operation {self.name!r}: {data.name!r} is a dataset of another graph")


class OpGraph:
    """An operation graph; :func:`penstock.opgraph.dataflow.plan` checks it and makes monotasks of it."""

    def __init__(self) -> None:
        self.data: list[Data] = []
        self.ops: list[Op] = []

    def has(self, one: Op | Data) -> bool:
        """Return whether an operation or a dataset belongs to this graph."""
        known: list[Op] | list[Data] = self.ops if isinstance(one, Op) else self.data
        return one.index < len(known) and known[one.index] is one

    def create_data(self, partitions: int, name: str = "") -> Data:
        """Return a new dataset that an operation will create.

        Raises:
            OpGraphError: fewer than one partition.
        """
        return self._add(Data(len(self.data), name or f"data{len(self.data)}", partitions))

    def create_input(self, content: Sequence[object], sizes_bytes: Sequence[int], name: str = "") -> Data:
        """Return a new input of the job: a value for each partition, and its size.

        Raises:
            OpGraphError: there is no partition, not one size for each, or a negative size.
        """
        index = len(self.data)
        data = Data(index, name or f"input{index}", len(content), tuple(content), tuple(sizes_bytes))
        if len(content) != len(sizes_bytes):
            has, sizes = counted(len(content), "partition"), counted(len(sizes_bytes), "size")
            raise OpGraphError(f"input {data.name!r}: {has}, but {sizes}")
        if min(sizes_bytes, default=0) < 0:
            raise OpGraphError(f"input {data.name!r}: a size must not be negative: {min(sizes_bytes)}")
        return self._add(data)

    def create_op(self, kind: ResourceKind | str, name: str = "") -> Op:
        """Return a new operation that uses one kind of resource.

        Raises:
            OpGraphError: ``kind`` is no kind of resource.
        """
        index = len(self.ops)
        try:
            op = Op(self, index, ResourceKind(kind), name or f"{kind}{index}")
        except ValueError:
            kinds = ", ".join(ResourceKind)
            raise OpGraphError(
                f"operation {name or index!r}: {kind!r} is no kind of resource; those are {kinds}"
            ) from None
        self.ops.append(op)
        return op

    def _add(self, data: Data) -> Data:
        if data.partitions < 1:
            raise OpGraphError(f"dataset {data.name!r} needs at least one partition, not {data.partitions}")
        self.data.append(data)
        return data
