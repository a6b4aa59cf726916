"""Spark-like transformations of datasets on top of the primitives of an OpGraph (Ursa §4.1.2).

Nothing is computed here: a dataset knows what it is made from, and :meth:`Dataset.flow` writes that down as operations
on CPU, disk and network. An engine carries them out, for example :mod:`penstock.engines.dask_dataset`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from penstock.dataset import functions
from penstock.dataset.text import lines, read_range, text_ranges
from penstock.model.resources import ResourceKind
from penstock.opgraph.dataflow import Data, Dependency, Op, OpGraph, Plan, Take, plan

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")

#: Partitions of a dataset that was given as items, where nobody says how many.
DEFAULT_PARTITIONS = 8


@dataclass(frozen=True)
class Built:
    """A dataset in a graph, and the operation that creates it."""

    data: Data
    creator: Op


Build = Callable[[OpGraph, tuple[Built, ...]], Built]


@dataclass(frozen=True)
class Broadcast(Generic[T]):
    """All items of a small dataset, for every partition of another one. Made by :meth:`Dataset.broadcast`."""

    dataset: Dataset[T]


@dataclass(frozen=True)
class Result(Generic[T]):
    """What somebody wants to know in the end: partitions of a dataset, and what makes one value of them."""

    dataset: Dataset[Any]
    finish: Callable[[list[Any]], T]


class Dataset(Generic[T]):
    """Items in partitions. Made by :meth:`from_items`, :meth:`from_partitions`, :meth:`read_text`."""

    def __init__(self, partitions: int, build: Build, parents: tuple[Dataset[Any], ...] = ()) -> None:
        """For the methods below; ``build`` adds the operations to a graph that has those of the parents."""
        if partitions < 1:
            raise ValueError(f"a dataset needs at least one partition, not {partitions}")
        self.partitions = partitions
        self.build = build
        self.parents = parents

    # ------------------------------------------------------------ where they come from

    @staticmethod
    def from_items(given: Iterable[U], partitions: int | None = None) -> Dataset[U]:
        """Items of this process in partitions of nearly equal length, in order.

        Raises:
            ValueError: fewer than one partition.
        """
        every = list(given)
        count = partitions if partitions is not None else max(1, min(DEFAULT_PARTITIONS, len(every)))
        if count < 1:
            raise ValueError(f"a dataset needs at least one partition, not {count}")
        bounds = [len(every) * part // count for part in range(count + 1)]
        return Dataset.from_partitions([every[bounds[part] : bounds[part + 1]] for part in range(count)])

    @staticmethod
    def from_partitions(given: Iterable[Iterable[U]]) -> Dataset[U]:
        """Items of this process, partitions as they are.

        Raises:
            ValueError: no partition.
        """
        content = [list(part) for part in given]
        # Enough to tell large from small: what items refer to is not followed.
        sizes = [sys.getsizeof(part) + sum(map(sys.getsizeof, part)) for part in content]

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            op = graph.create_op(ResourceKind.CPU, "from_items").read(graph.create_input(content, sizes, "items"))
            return _created(graph, op.set_udf(functions.items), len(content))

        return Dataset(len(content), build)

    @staticmethod
    def read_text(paths: str | Path | Iterable[str | Path], partition_bytes: int = 64 * 2**20) -> Dataset[str]:
        """Lines of UTF-8 files, without their ends, in partitions of about ``partition_bytes``.

        Only sizes are read here; every host that carries out the reading must see the files under the same path.

        Raises:
            ValueError: no file, or partitions of less than one byte.
            OSError: a file that is not there.
        """
        every = [paths] if isinstance(paths, str | Path) else list(paths)
        ranges = text_ranges(map(Path, every), partition_bytes)

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            files = graph.create_input(ranges, [one.length for one in ranges], "files")
            op = graph.create_op(ResourceKind.DISK, "read_text").read(files).set_access(read_range)
            return _cpu(graph, "lines", lines, [_created(graph, op, len(ranges))])

        return Dataset(len(ranges), build)

    # ------------------------------------------------------------ one to one

    def map_partitions(self, function: Callable[..., Iterable[U]], *broadcasts: Broadcast[Any]) -> Dataset[U]:
        """``function(list of items, *broadcast values)`` → items of the partition to come."""
        return self._one_to_one(_named("map_partitions", function), function, broadcasts)

    def map(self, function: Callable[..., U], *broadcasts: Broadcast[Any]) -> Dataset[U]:
        """``function(item, *broadcast values)`` → item."""
        return self._one_to_one(_named("map", function), functions.Each(function), broadcasts)

    def filter(self, function: Callable[..., object], *broadcasts: Broadcast[Any]) -> Dataset[T]:
        """Keep the items for which ``function(item, *broadcast values)`` is true."""
        return self._one_to_one(_named("filter", function), functions.Those(function), broadcasts)

    def flat_map(self, function: Callable[..., Iterable[U]], *broadcasts: Broadcast[Any]) -> Dataset[U]:
        """``function(item, *broadcast values)`` → any number of items."""
        return self._one_to_one(_named("flat_map", function), functions.EachOfEach(function), broadcasts)

    def broadcast(self) -> Broadcast[T]:
        """All items as one list, to be given to the function of another dataset's transformation."""
        return Broadcast(self)

    # ------------------------------------------------------------ by key

    def group_by_key(self: Dataset[tuple[K, V]], partitions: int | None = None) -> Dataset[tuple[K, list[V]]]:
        """Pairs → each key with all its values, in their order. What can be a key: :mod:`penstock.dataset.keys`.

        Raises:
            ValueError: fewer than one partition.
        """
        count = self.partitions if partitions is None else partitions

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            sent = _shuffle(graph, "group_by_key", functions.Send(count), parents[0], count)
            return _cpu(graph, "group_by_key", functions.grouped, [sent])

        return Dataset(count, build, (self,))

    def reduce_by_key(
        self: Dataset[tuple[K, V]], combine: Callable[[V, V], V], partitions: int | None = None
    ) -> Dataset[tuple[K, V]]:
        """Pairs → each key with its values combined, before they are sent and after. ``combine`` must be associative.

        Raises:
            ValueError: fewer than one partition.
        """
        count = self.partitions if partitions is None else partitions

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            send = functions.CombineAndSend(combine, count)
            sent = _shuffle(graph, "reduce_by_key", send, parents[0], count)
            return _cpu(graph, "reduce_by_key", functions.Combine(combine), [sent])

        return Dataset(count, build, (self,))

    def join(
        self: Dataset[tuple[K, V]],
        other: Dataset[tuple[K, W]],
        partitions: int | None = None,
        *,
        selectivity: float = 1.0,
    ) -> Dataset[tuple[K, tuple[V, W]]]:
        """Pairs (k, v) and (k, w) → (k, (v, w)) for each of the one with each of the other.

        ``selectivity`` is output ÷ input in bytes; memory is estimated as 1 + selectivity times the input (§4.2.1).

        Raises:
            ValueError: fewer than one partition.
        """
        count = max(self.partitions, other.partitions) if partitions is None else partitions

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            sides = [
                _shuffle(graph, f"join.{side}", functions.Send(count), parent, count)
                for side, parent in zip(("left", "right"), parents, strict=True)
            ]
            found = _cpu(graph, "join", functions.joined, sides)
            found.creator.estimate(memory_to_input=1.0 + selectivity)
            return found

        return Dataset(count, build, (self, other))

    # ------------------------------------------------------------ results

    def collect(self) -> Result[list[T]]:
        """All items, in the order of the partitions."""
        return Result(self, functions.concatenate)

    def count(self) -> Result[int]:
        """How many items there are: each partition is counted where it is."""

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            return _cpu(graph, "count", len, [parents[0]])

        return Result(Dataset(self.partitions, build, (self,)), sum)

    def flow(self) -> tuple[OpGraph, Data]:
        """The operations that make this dataset, and the dataset among theirs."""
        graph = OpGraph()
        built: dict[Dataset[Any], Built] = {}
        pending: list[Dataset[Any]] = [self]
        while pending:  # no recursion: a chain may have thousands of steps
            one = pending[-1]
            missing = [parent for parent in one.parents if parent not in built]
            if missing:
                pending += reversed(missing)
                continue
            pending.pop()
            if one not in built:
                built[one] = one.build(graph, tuple(built[parent] for parent in one.parents))
        return graph, built[self].data

    def plan(self) -> Plan:
        """The monotasks, tasks and stages that make this dataset."""
        graph, data = self.flow()
        return plan(graph, [data])

    def _one_to_one(
        self, name: str, function: Callable[..., Iterable[U]], broadcasts: tuple[Broadcast[Any], ...]
    ) -> Dataset[U]:
        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            pulled = [_broadcast(graph, name, small, self.partitions) for small in parents[1:]]
            found = _cpu(graph, name, functions.ByPartition(function), [parents[0], *pulled])
            if isinstance(function, functions.Those):
                found.creator.estimate(memory_to_input=2.0)  # §4.2.1
            return found

        return Dataset(self.partitions, build, (self, *(small.dataset for small in broadcasts)))


def _named(what: str, function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", "<unnamed>")
    return what if name.startswith("<") else f"{what}({name})"


def _created(graph: OpGraph, op: Op, partitions: int) -> Built:
    data = graph.create_data(partitions, op.name)
    return Built(data, op.create(data))


def _cpu(graph: OpGraph, name: str, function: Callable[..., Any], sources: list[Built]) -> Built:
    """A CPU operation that takes partition *i* of each source."""
    op = graph.create_op(ResourceKind.CPU, name).set_udf(function)
    for source in sources:
        op.read(source.data)
        if source.creator not in op.before:
            source.creator.to(op, Dependency.ASYNC)
    return _created(graph, op, sources[0].data.partitions)


def _shuffle(graph: OpGraph, name: str, send: Callable[..., Any], source: Built, partitions: int) -> Built:
    """Everything to the partition of its key, as in the example of §4.1.2."""
    sent = _cpu(graph, f"{name}.send", send, [source])
    return _network(graph, f"{name}.shuffle", sent, Take.PART, partitions)


def _broadcast(graph: OpGraph, name: str, source: Built, partitions: int) -> Built:
    return _network(graph, f"{name}.broadcast", source, Take.WHOLE, partitions)


def _network(graph: OpGraph, name: str, source: Built, take: Take, partitions: int) -> Built:
    op = graph.create_op(ResourceKind.NETWORK, name).read(source.data, take)
    source.creator.to(op, Dependency.SYNC)
    return _created(graph, op, partitions)
