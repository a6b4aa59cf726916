"""The metadata store and the estimates from it (Ursa §4.1.3 "Metadata", §4.2.1).

"The JM maintains a metadata store that records the size and locality of each dataset partition." From it come the input
bytes of each ready monotask, which are known exactly, and a ready task's estimated usage and memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.model.resources import KindAmounts, ResourceKind
from penstock.opgraph.checking import Input
from penstock.opgraph.collapsing import PlannedOp
from penstock.opgraph.ops import Dependency, Take
from penstock.opgraph.planning import Plan, PlannedStage, PlannedTask

#: The default m2i: the input and as much again, the paper's value for a filter.
DEFAULT_MEMORY_TO_INPUT = 2.0


@dataclass(frozen=True, slots=True)
class Made:
    """A partition that a monotask created or updated: its size, and the size of each part if it is read in parts."""

    size_bytes: int
    part_bytes: tuple[int, ...] = ()


class Metadata:
    """The sizes and places of all existing partitions."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made: dict[tuple[int, int], Made] = {}
        self._places: dict[tuple[int, int], str] = {}
        for version in plan.versions:
            if version.writer is None:
                for partition, size in enumerate(version.data.sizes_bytes):
                    self._made[version.index, partition] = Made(size)

    def record(self, version: int, partition: int, made: Made, place: str) -> None:
        """Record a new partition; ``place`` is "" if it is unknown."""
        self._made[version, partition] = made
        self._places[version, partition] = place

    def place(self, version: int, partition: int) -> str:
        """Return the node of a partition; "" if it is unknown."""
        return self._places.get((version, partition), "")

    def input_bytes(self, op: PlannedOp, partition: int) -> int:
        """Return the input size of an operation's ready monotask, in bytes: its work (§4.2.1)."""
        return sum(self.read_bytes(read, partition) for read in op.inputs)

    def read_bytes(self, read: Input, partition: int) -> int:
        """Return the bytes that the monotask of a partition reads of one dataset, all of which must exist."""
        if read.take is Take.OWN:
            return self._made[read.version, partition].size_bytes
        theirs = self._plan.partitions(read.version)
        if read.take is Take.WHOLE:
            return sum(self._made[read.version, other].size_bytes for other in theirs)
        return sum(self._made[read.version, other].part_bytes[partition] for other in theirs)

    def expected_bytes(self, version: int) -> float:
        """Return the expected size of a whole dataset from the mean size of its existing partitions; 0 without any."""
        partitions = self._plan.partitions(version)
        made = [self._made[version, one].size_bytes for one in partitions if (version, one) in self._made]
        return sum(made) * len(partitions) / len(made) if made else 0.0


@dataclass(frozen=True, slots=True)
class TaskEstimate:
    """The estimates of a task when it becomes ready: I(t) and its usage per kind, in bytes."""

    task: int
    input_bytes: int
    usage: KindAmounts


def estimate(plan: Plan, metadata: Metadata, task: PlannedTask) -> TaskEstimate:
    """Return a ready task's input and usage (§4.2.1).

    "The usage of a task is calculated as the sum of the estimated usage of all its monotasks", each of which is the
    size of its input. The size of data from other tasks is known. Data from the task itself is estimated as its
    maker's input × the maker's ``expansion`` (data stored compressed). "We simply estimate disk write usage as the
    total input size of the task."
    """
    made_here: dict[int, float] = {}  # version → bytes, summed over the partitions that this task makes
    computes = False
    total = 0
    usage = KindAmounts()
    for monotask in (plan.monotasks[index] for index in task.monotasks):
        op = plan.ops[monotask.op]
        work = 0.0
        for read in op.inputs:
            if read.version in made_here:
                work += made_here[read.version] * _share(plan, read, monotask.task)
            else:
                size = metadata.read_bytes(read, monotask.partition)
                total += size
                work += size
        for version in op.outputs:
            made_here[version] = made_here.get(version, 0.0) + work * op.expansion
        writes = op.kind is ResourceKind.DISK and computes
        usage += KindAmounts.single(op.kind, float(total) if writes else work)
        computes = computes or op.kind is ResourceKind.CPU
    return TaskEstimate(task.index, total, usage)


def expected(plan: Plan, metadata: Metadata, stage: PlannedStage) -> KindAmounts:
    """Return the usage of a whole stage without ready tasks, as far as its input is known.

    The calculation is that for a task. Missing partitions of other stages count as the mean of the existing ones.
    """
    made_here: dict[int, float] = {}
    computes = False
    total = 0.0
    usage = KindAmounts()
    for op in (plan.ops[index] for index in stage.ops):
        work = 0.0
        for read in op.inputs:
            times = op.partitions if read.take is Take.WHOLE else 1
            if read.version in made_here:
                work += made_here[read.version] * times
            else:
                size = metadata.expected_bytes(read.version) * times
                total += size
                work += size
        for version in op.outputs:
            made_here[version] = work * op.expansion
        writes = op.kind is ResourceKind.DISK and computes
        usage += KindAmounts.single(op.kind, total if writes else work)
        computes = computes or op.kind is ResourceKind.CPU
    return usage


def _share(plan: Plan, read: Input, task: int) -> float:
    """Return the fraction of a task's part of a dataset that one of its own monotasks reads."""
    if read.take is Take.WHOLE:
        return 1.0
    if read.take is Take.PART:
        return 1.0 / plan.parts[read.version]
    writer = plan.writers[read.version]
    here = sum(1 for index in plan.tasks[task].monotasks if plan.monotasks[index].op == writer)
    return 1.0 / here


def memory_to_input(plan: Plan, task: PlannedTask, learned: dict[str, float]) -> float:
    """Return m2i(t): the stage's value learned from earlier runs, or the largest given value of its operations."""
    stage = plan.stages[task.stage]
    if stage.name in learned:
        return learned[stage.name]
    given = [value for op in stage.ops if (value := plan.ops[op].memory_to_input) is not None]
    return max(given, default=DEFAULT_MEMORY_TO_INPUT)


def memory_bytes(task: TaskEstimate, ratio: float, all_ready_bytes: int = 0, job_memory_bytes: int = 0) -> int:
    """Return M(t) of a ready task whose m2i is ``ratio``: min{r × M(j), m2i(t) × I(t)} (§4.2.1).

    r is "the ratio of the input size of t to the total input size of all the ready tasks of the job",
    ``all_ready_bytes``. Without an estimate of M(j) (0), only the second term counts.
    """
    by_input = ratio * task.input_bytes
    share = task.input_bytes / all_ready_bytes if all_ready_bytes else 0.0
    return math.ceil(min(share * job_memory_bytes, by_input) if job_memory_bytes else by_input)


def heaviest_place(plan: Plan, metadata: Metadata, task: PlannedTask) -> str:
    """Return the node with most of the data that crosses a one-to-one cut to this task; "" if unknown or no data does.

    Data for network monotasks does not count, as it is pulled to any node.
    """
    weights: dict[str, int] = {}
    cuts = {
        (link.before, link.after)
        for link in plan.links
        if link.crosses
        and link.dependency is Dependency.ASYNC
        and plan.ops[link.after].kind is not ResourceKind.NETWORK
    }
    for monotask in (plan.monotasks[index] for index in task.monotasks) if cuts else ():
        for read in plan.ops[monotask.op].inputs:
            if read.take is Take.OWN and (plan.writers.get(read.version), monotask.op) in cuts:
                place = metadata.place(read.version, monotask.partition)
                weights[place] = weights.get(place, 0) + metadata.read_bytes(read, monotask.partition)
    weights.pop("", None)
    return max(weights, key=lambda place: (weights[place], place), default="")
