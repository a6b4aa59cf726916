"""Spark-like transformations of datasets, made from the primitives of an OpGraph (Ursa §4.1.2).

Nothing is computed here: a dataset refers to its parents, and :meth:`Dataset.flow` returns the operations on CPU, disk
and network that make it. An engine carries them out, for example :mod:`penstock.engines.dask_dataset`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
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

#: The default number of partitions of a dataset that is given as items.
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
    """The wanted result of a dataflow: a dataset, and the function that makes one value of its partitions."""

    dataset: Dataset[Any]
    finish: Callable[[list[Any]], T]


class Dataset(Generic[T]):
    """Items in partitions, made by :meth:`from_items`, :meth:`from_partitions` or :meth:`read_text`."""

    def __init__(self, partitions: int, build: Build, parents: tuple[Dataset[Any], ...] = ()) -> None:
        """Called by the methods below; ``build`` adds the operations to a graph with those of the parents."""
        if partitions < 1:
            raise ValueError(f"a dataset needs at least one partition, not {partitions}")
        self.partitions = partitions
        self.build = build
        self.parents = parents

    # ------------------------------------------------------------ where they come from

    @staticmethod
    def from_items(given: Iterable[U], partitions: int | None = None) -> Dataset[U]:
        """Return items of this process in partitions of nearly equal length, in order.

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
        """Return items of this process in the given partitions.

        Raises:
            ValueError: no partition.
        """
        content = [list(part) for part in given]
        # A rough size suffices, so objects to which items refer are not counted.
        sizes = [sys.getsizeof(part) + sum(map(sys.getsizeof, part)) for part in content]

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            op = graph.create_op(ResourceKind.CPU, "from_items").read(graph.create_input(content, sizes, "items"))
            return _created(graph, op.set_udf(list), len(content))

        return Dataset(len(content), build)

    @staticmethod
    def read_text(paths: str | Path | Iterable[str | Path], partition_bytes: int = 64 * 2**20) -> Dataset[str]:
        """Return the lines of UTF-8 files, without their ends, in partitions of about ``partition_bytes``.

        Only sizes are read here; every host that reads the files must see them under the same path.

        Raises:
            ValueError: there is no file, or partitions have less than one byte.
            OSError: a file is missing.
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
        """Apply ``function(list of items, *broadcast values)`` → items of the new partition."""
        return self._one_to_one(_named("map_partitions", function), function, broadcasts)

    def map(self, function: Callable[..., U], *broadcasts: Broadcast[Any]) -> Dataset[U]:
        """Apply ``function(item, *broadcast values)`` → item."""
        return self._one_to_one(_named("map", function), partial(functions.map_items, function), broadcasts)

    def filter(self, function: Callable[..., object], *broadcasts: Broadcast[Any]) -> Dataset[T]:
        """Keep the items for which ``function(item, *broadcast values)`` is true."""
        keep = partial(functions.filter_items, function)
        return self._one_to_one(_named("filter", function), keep, broadcasts, memory_to_input=2.0)  # §4.2.1

    def flat_map(self, function: Callable[..., Iterable[U]], *broadcasts: Broadcast[Any]) -> Dataset[U]:
        """Apply ``function(item, *broadcast values)`` → any number of items."""
        return self._one_to_one(_named("flat_map", function), partial(functions.flat_map_items, function), broadcasts)

    def broadcast(self) -> Broadcast[T]:
        """Return all items as one list, an argument for the function of another dataset's transformation."""
        return Broadcast(self)

    # ------------------------------------------------------------ by key

    def group_by_key(self: Dataset[tuple[K, V]], partitions: int | None = None) -> Dataset[tuple[K, list[V]]]:
        """Turn pairs into each key with all its values, in their order; :mod:`penstock.dataset.keys` lists valid keys.

        Raises:
            ValueError: fewer than one partition.
        """
        count = self.partitions if partitions is None else partitions

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            sent = _shuffle(graph, "group_by_key", partial(functions.send, count), parents[0], count)
            return _cpu(graph, "group_by_key", functions.grouped, [sent])

        return Dataset(count, build, (self,))

    def reduce_by_key(
        self: Dataset[tuple[K, V]], combine: Callable[[V, V], V], partitions: int | None = None
    ) -> Dataset[tuple[K, V]]:
        """Turn pairs into each key with its values combined, before sending and after. ``combine`` must be associative.

        Raises:
            ValueError: fewer than one partition.
        """
        count = self.partitions if partitions is None else partitions

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            send = partial(functions.combine_and_send, combine, count)
            sent = _shuffle(graph, "reduce_by_key", send, parents[0], count)
            return _cpu(graph, "reduce_by_key", partial(functions.combine_parts, combine), [sent])

        return Dataset(count, build, (self,))

    def join(
        self: Dataset[tuple[K, V]],
        other: Dataset[tuple[K, W]],
        partitions: int | None = None,
        *,
        selectivity: float = 1.0,
    ) -> Dataset[tuple[K, tuple[V, W]]]:
        """Join pairs (k, v) and (k, w) to (k, (v, w)), for all combinations with equal keys.

        ``selectivity`` is output ÷ input in bytes; memory is estimated as 1 + selectivity times the input (§4.2.1).

        Raises:
            ValueError: fewer than one partition.
        """
        count = max(self.partitions, other.partitions) if partitions is None else partitions

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            sides = [
                _shuffle(graph, f"join.{side}", partial(functions.send, count), parent, count)
                for side, parent in zip(("left", "right"), parents, strict=True)
            ]
            found = _cpu(graph, "join", functions.joined, sides)
            found.creator.estimate(memory_to_input=1.0 + selectivity)
            return found

        return Dataset(count, build, (self, other))

    # ------------------------------------------------------------ results

    def collect(self) -> Result[list[T]]:
        """Return all items, in the order of the partitions."""
        return Result(self, functions.concatenate)

    def count(self) -> Result[int]:
        """Return the number of items; each partition is counted on its own node."""

        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            return _cpu(graph, "count", len, [parents[0]])

        return Result(Dataset(self.partitions, build, (self,)), sum)

    def flow(self) -> tuple[OpGraph, Data]:
        """Return the graph of the operations that make this dataset, and the dataset in that graph."""
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
        """Return the plan (monotasks, tasks and stages) that makes this dataset."""
        graph, data = self.flow()
        return plan(graph, [data])

    def _one_to_one(
        self,
        name: str,
        function: Callable[..., Iterable[U]],
        broadcasts: tuple[Broadcast[Any], ...],
        memory_to_input: float | None = None,
    ) -> Dataset[U]:
        def build(graph: OpGraph, parents: tuple[Built, ...]) -> Built:
            pulled = [_network(graph, f"{name}.broadcast", small, Take.WHOLE, self.partitions) for small in parents[1:]]
            found = _cpu(graph, name, partial(functions.by_partition, function), [parents[0], *pulled])
            if memory_to_input is not None:
                found.creator.estimate(memory_to_input=memory_to_input)
            return found

        return Dataset(self.partitions, build, (self, *(small.dataset for small in broadcasts)))


def _named(what: str, function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", "<unnamed>")
    return what if name.startswith("<") else f"{what}({name})"


def _created(graph: OpGraph, op: Op, partitions: int) -> Built:
    data = graph.create_data(partitions, op.name)
    return Built(data, op.create(data))


def _cpu(graph: OpGraph, name: str, function: Callable[..., Any], sources: list[Built]) -> Built:
    """Add a CPU operation that takes partition *i* of each source."""
    op = graph.create_op(ResourceKind.CPU, name).set_udf(function)
    for source in sources:
        op.read(source.data)
        if source.creator not in op.before:
            source.creator.to(op, Dependency.ASYNC)
    return _created(graph, op, sources[0].data.partitions)


def _shuffle(graph: OpGraph, name: str, send: Callable[..., Any], source: Built, partitions: int) -> Built:
    """Add operations that send each pair to the partition of its key, as in the example of §4.1.2."""
    sent = _cpu(graph, f"{name}.send", send, [source])
    return _network(graph, f"{name}.shuffle", sent, Take.PART, partitions)


def _network(graph: OpGraph, name: str, source: Built, take: Take, partitions: int) -> Built:
    op = graph.create_op(ResourceKind.NETWORK, name).read(source.data, take)
    source.creator.to(op, Dependency.SYNC)
    return _created(graph, op, partitions)
