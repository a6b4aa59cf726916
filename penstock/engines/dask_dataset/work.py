"""The functions and keys of a dataset's Dask tasks.

One Dask task is one monotask, so that Dask's graph, the agent's queues and the plan have the same units. In addition
there are *picks*: one for each part of a partition that a shuffle reads (and for each of several outputs), so that Dask
transfers only the requested parts. They do no work of their own and count as sending (§4.1.4: the sender's network
service hands out the part).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.model.resources import ResourceKind
from penstock.model.units import counted
from penstock.opgraph.dataflow import Plan, PlannedOp, Take

#: A key of a Dask task: the group of the operation, then the partition.
Key = tuple[Any, ...]

_NAME_CHARACTERS = 60


class OpaqueValue:
    """A value in a graph that Dask must treat as opaque."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


@dataclass(frozen=True)
class Step:
    """An operation within a collapsed CPU operation: the slots that it reads, and the slots that it fills."""

    name: str
    function: Callable[..., Any]
    reads: tuple[int, ...]
    fills: tuple[int, ...]
    parts: tuple[int | None, ...]  # for each slot that it fills: the required number of parts


@dataclass(frozen=True)
class Work:
    """A CPU or disk monotask. Slots 0, 1… are its inputs; ``outputs`` are the slots to return."""

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def __call__(self, partition: int, *inputs: Any) -> Any:
        """Return the value of the only output, or a tuple of several.

        Raises:
            Exception: raised by a step, with a note that names the operation.
        """
        slots = dict(enumerate(map(_plain_value, inputs)))
        for step in self.steps:
            try:
                made = step.function(*(slots[slot] for slot in step.reads))
                values = (made,) if len(step.fills) == 1 else tuple(made)
                _check(step, values)
            except Exception as error:
                error.add_note(f"in operation {step.name!r}, partition {partition}")
                raise
            slots.update(zip(step.fills, values, strict=True))
        return slots[self.outputs[0]] if len(self.outputs) == 1 else tuple(slots[slot] for slot in self.outputs)


def _check(step: Step, values: tuple[Any, ...]) -> None:
    if len(values) != len(step.fills):
        raise ValueError(
            f"its function returned {counted(len(values), 'value')} for {counted(len(step.fills), 'dataset')}"
        )
    for value, parts in zip(values, step.parts, strict=True):
        if parts is not None and len(value) != parts:
            raise ValueError(f"its function returned {counted(len(value), 'part')}, not {parts}")


def pull(partition: int, value: Any) -> Any:
    """Run a network monotask: Dask has transferred its input before it runs."""
    return _plain_value(value)


def _plain_value(value: Any) -> Any:
    if isinstance(value, OpaqueValue):
        return value.value
    if isinstance(value, list) and value and isinstance(value[0], OpaqueValue):
        return [one.value for one in value]
    return value


def pick(value: Any, path: tuple[int, ...]) -> Any:
    """Return one of several outputs, or one part of a partition."""
    for index in path:
        value = value[index]
    return value


def work_of(plan: Plan, op: PlannedOp) -> Callable[..., Any]:
    """Return the function of an operation's monotasks, called with the partition and one value for each input."""
    if op.kind is ResourceKind.NETWORK:
        return pull
    # An operation that reads one version in two ways has two inputs for it.
    slots: dict[tuple[int, Take], int] = {(read.version, read.take): slot for slot, read in enumerate(op.inputs)}
    steps = []
    for step in op.steps:
        reads = tuple(slots[read.version, read.take] for read in step.inputs)
        fills = tuple(slots.setdefault((version, Take.OWN), len(slots)) for version in step.outputs)
        function = step.op.function
        assert function is not None, "checked by the planner"
        parts = tuple(plan.parts.get(version) for version in step.outputs)
        steps.append(Step(step.op.name, function, reads, fills, parts))
    return Work(tuple(steps), tuple(slots[version, Take.OWN] for version in op.outputs))


class Keys:
    """The keys of one run of a plan; ``token`` distinguishes runs."""

    def __init__(self, plan: Plan, token: str) -> None:
        self._plan = plan
        self._token = token
        self._read_whole = set(plan.results)
        for op in plan.ops:
            self._read_whole.update(read.version for read in op.inputs if read.take is not Take.PART)

    def monotask(self, op: PlannedOp, partition: int) -> Key:
        """Return the key of a monotask."""
        return (f"{_plain(op.name)}-{self._token}-{op.index}", partition)

    def whole(self, version: int, partition: int) -> Key:
        """Return the key of a whole partition."""
        op = self._plan.ops[self._plan.writers[version]]
        if len(op.outputs) == 1:
            return self.monotask(op, partition)
        return (f"{_plain(op.name)}.output-{self._token}-{op.index}", partition, version)

    def part(self, version: int, partition: int, part: int) -> Key:
        """Return the key of a part of a partition."""
        op = self._plan.ops[self._plan.writers[version]]
        return (f"{_plain(op.name)}.part-{self._token}-{op.index}", partition, version, part)

    def picks(self, op: PlannedOp, partition: int) -> dict[Key, tuple[int, ...]]:
        """Return the picks of a monotask's value: their keys, each with its path into that value."""
        found: dict[Key, tuple[int, ...]] = {}
        several = len(op.outputs) > 1
        for position, version in enumerate(op.outputs):
            path = (position,) if several else ()
            if several and version in self._read_whole:
                found[self.whole(version, partition)] = path
            for part in range(self._plan.parts.get(version, 0)):
                found[self.part(version, partition, part)] = (*path, part)
        return found

    def kept(self, version: int, partition: int) -> list[Key]:
        """Return the keys that hold a finished partition: itself if it is read as a whole, then its parts."""
        whole = [self.whole(version, partition)] if version in self._read_whole else []
        return whole + [self.part(version, partition, part) for part in range(self._plan.parts.get(version, 0))]

    def arguments(self, op: PlannedOp, partition: int) -> list[OpaqueValue | Key | list[OpaqueValue | Key]]:
        """Return a monotask's arguments, one for each input; a list of keys if the input is all partitions."""
        found: list[OpaqueValue | Key | list[OpaqueValue | Key]] = []
        for read in op.inputs:
            if read.take is Take.OWN:
                found.append(self._one(read.version, partition))
                continue
            theirs = self._plan.partitions(read.version)
            if read.take is Take.PART:
                found.append([self.part(read.version, other, partition) for other in theirs])
            else:
                found.append([self._one(read.version, other) for other in theirs])
        return found

    def _one(self, version: int, partition: int) -> OpaqueValue | Key:
        content = self._plan.versions[version].data.content
        if content is not None and version not in self._plan.writers:
            return OpaqueValue(content[partition])
        return self.whole(version, partition)


def _plain(name: str) -> str:
    """Return a name that Dask's grouping by prefix keeps whole: without dashes and numbers."""
    return re.sub(r"[^A-Za-z_.]+", "_", name).strip("_")[:_NAME_CHARACTERS] or "operation"


def results(plan: Plan, keys: Keys) -> list[list[Key]]:
    """Return the keys of each result's partitions."""
    return [[keys.whole(version, part) for part in plan.partitions(version)] for version in plan.results]


def note(kind: ResourceKind | None, stage: str, input_bytes: int | None = None, **more: str) -> dict[str, Any]:
    """Return the annotation ``penstock`` of a Dask task.

    ``kind`` is the kind of the grant: ``none`` for picks, and for network monotasks, as their transfers are Dask's and
    are gated as such, with their sizes, before the tasks run; ``monotask`` is the kind in the plan. Sizes are omitted
    if nothing has run yet from which they are known.
    """
    gated = kind if kind in {ResourceKind.CPU, ResourceKind.DISK} else None
    found: dict[str, Any] = {"kind": gated.value if gated else "none", "stage": stage, **more}
    if kind is not None:
        found["monotask"] = kind.value
    if input_bytes is not None:
        found["input_bytes"] = input_bytes
    return found
