"""Units of work: monotask and task, as a framework announces them (Ursa §4.1.3 and §4.2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from penstock.model.container import MOST_STAGES, ContainerSpec
from penstock.model.executor import Executor
from penstock.model.resources import KindAmounts, ResourceKind

LONGEST_NAME = 128
#: Names that clients choose. They are only ever keys and labels, never paths.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
#: A monotask's name, unique within its job and connection while it lives.
MonotaskId = int | Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: Where work may run (UBIS §IV.D): false: on regular resources only; true: on slack if it finds no regular resources;
#: "only": on slack only, and it is never promoted, so that it never displaces other work.
Opportunistic = bool | Literal["only"]
#: The same for a whole job; or the stages that may run on slack; or None: each of its stages decides.
OpportunisticJob = Opportunistic | Annotated[list[Name], msgspec.Meta(max_length=MOST_STAGES)] | None


def opportunism(job: OpportunisticJob, stage: str, asked: Opportunistic) -> Opportunistic:
    """Return where a stage may run: a job allows slack for all, no or named stages (UBIS §IV.D), or leaves it to
    what is ``asked`` for the stage.
    """
    if isinstance(job, list):
        job = stage in job
    if job is None or (job is True and asked):
        return asked
    return job


class MonotaskSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A ready monotask: one resource kind, input size known (Ursa §4.2.1: its work *is* its input size).

    Monotasks of one ``stage`` are ordered by size; the stages of a job are served in the order of first appearance.
    ``task`` is the placed task of this monotask: the load that the master counts on the node falls as a task's
    monotasks end. ``running`` re-announces a monotask that was granted before the agent's restart: it holds a slot at
    once, even if that exceeds the limit for a while.
    """

    id: MonotaskId
    kind: ResourceKind
    input_bytes: Bytes
    stage: str = ""
    task: str = ""
    running: bool = False


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A ready task that needs a node (Ursa §4.2.1).

    ``usage`` is the task's estimated work per kind in bytes, the sum over its monotasks. ``memory_bytes`` is reserved
    on the chosen node until the task is done. With ``command``, that node's agent runs the command as one monotask of
    the kind ``command_kind``; without, the framework itself executes the task's monotasks there. ``nodes`` restricts
    the choice (data locality); empty means any. A command with ``executor`` is placed by its predicted demand, which
    its limits follow.
    """

    task: Name
    usage: KindAmounts
    memory_bytes: Bytes = 0
    nodes: Annotated[tuple[str, ...], msgspec.Meta(max_length=10_000)] = ()
    command: ContainerSpec | None = None
    command_kind: ResourceKind = ResourceKind.CPU
    executor: Executor | None = None

    def __post_init__(self) -> None:
        """Raises: ValueError: ``executor`` without ``command``."""
        if self.executor is not None and self.command is None:
            raise ValueError("executor: only a command can be one; add `command`")


class StageProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A stage of a job: the known number of tasks, the number of done ones, and the stages that it waits for.
    ``skipped`` of the done ones, at most ``done``, were never run, as a task before them failed; a peer that does not
    know this field would refuse it.

    ``usage`` is the remaining work in bytes per kind, if the framework knows it; ``input_bytes``, which counts as
    CPU, is for a framework that cannot distinguish the kinds.
    """

    stage: Name
    tasks: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    done: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    skipped: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    after: Annotated[list[Name], msgspec.Meta(max_length=MOST_STAGES)] = []
    input_bytes: Bytes = 0
    usage: KindAmounts = KindAmounts()

    def __post_init__(self) -> None:
        """Raises: ValueError: an amount that is not finite or negative, or more skipped tasks than done ones."""
        if not self.usage.is_valid():
            raise ValueError("usage: expected non-negative numbers")
        if self.skipped > self.done:
            raise ValueError("skipped: expected at most `done`; count a skipped task in `done`, too")

    def outline(self) -> tuple[object, ...]:
        """Return what the stage is, whether it is over, and whether its remaining work is known."""
        known = self.input_bytes > 0 or self.usage != KindAmounts()
        return self.stage, self.tasks, self.after, self.done >= self.tasks, known

    def row(self) -> FullStageProgress:
        """Return the stage for a status document, with the fields that a message omits."""
        usage = _FullKindAmounts(self.usage.cpu, self.usage.disk, self.usage.network)
        return FullStageProgress(**{**msgspec.structs.asdict(self), "usage": usage})


def without_skipped(stages: Iterable[StageProgress]) -> list[StageProgress]:
    """Return the stages for a peer that does not know skipped tasks: to it they are done."""
    return [msgspec.structs.replace(stage, skipped=0) if stage.skipped else stage for stage in stages]


class FullStageProgress(StageProgress, frozen=True, kw_only=True, omit_defaults=False):
    """A :class:`StageProgress` in which every key is present, for documents."""


class _FullKindAmounts(KindAmounts, frozen=True, omit_defaults=False):
    pass


def has_news(before: Sequence[StageProgress], report: Sequence[StageProgress]) -> bool:
    """Return whether a report of a job's stages says more than counts of the stages in the report before it: stages
    are new, gone or over, or their tasks, their order or whether their remaining work is known have changed.
    """
    return [stage.outline() for stage in before] != [stage.outline() for stage in report]
