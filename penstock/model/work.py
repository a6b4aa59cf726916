"""Units of work: monotask and task, as a framework announces them (Ursa §4.1.3 and §4.2.1)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from penstock.model.container import ContainerSpec
from penstock.model.executor import Executor
from penstock.model.resources import KindAmounts, ResourceKind

#: Names that clients choose. They are only ever keys and labels, never paths.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
#: A monotask's name, unique within its job and connection while it lives.
MonotaskId = int | Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: What work allows (UBIS §IV.D): false: regular room only; true: what finds no regular room may run on slack; "only":
#: on slack and nowhere else, and never promoted, so that it is in nobody's way.
Opportunistic = bool | Literal["only"]
#: The same of a whole job; or the stages that may run on slack; or None: each of its stages says it itself.
OpportunisticJob = Opportunistic | Annotated[list[Name], msgspec.Meta(max_length=4096)] | None


class MonotaskSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A ready monotask: one resource kind, input size known (Ursa §4.2.1: its work *is* its input size).

    ``stage`` groups the monotasks that are ordered by size among themselves; stages of a job are served in the order
    in which they first appeared. ``task`` names the placed task that this monotask belongs to, so that the load which
    the master counts on the node falls as its monotasks end. ``running`` re-announces a monotask whose grant was given
    by an agent that has since restarted: it holds its slot at once, even if that exceeds the limit for a while.
    """

    id: MonotaskId
    kind: ResourceKind
    input_bytes: Bytes
    stage: str = ""
    task: str = ""
    running: bool = False


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A ready task that wants a node (Ursa §4.2.1).

    ``usage`` is the task's estimated work per kind in bytes, the sum over its monotasks. ``memory_bytes`` is held on
    the chosen node until the task is done. With ``command`` the chosen node's agent runs it as one monotask of the kind
    ``command_kind``; without, the framework itself executes the task's monotasks there.
    ``nodes`` restricts the choice (data locality); empty means any. A command with ``executor`` is placed by its
    predicted demand and its limits follow that.
    """

    task: Name
    usage: KindAmounts
    memory_bytes: Bytes = 0
    nodes: Annotated[tuple[str, ...], msgspec.Meta(max_length=10_000)] = ()
    command: ContainerSpec | None = None
    command_kind: ResourceKind = ResourceKind.CPU
    executor: Executor | None = None

    def __post_init__(self) -> None:
        """Raises: ValueError: an executor that is no command."""
        if self.executor is not None and self.command is None:
            raise ValueError("executor: only a command can be one; add `command`")


class StageProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A stage of a job: how many tasks it has, as far as is known, how many are done, which stages it waits for.

    The work of the tasks that are not done, where the framework can tell: ``usage`` in bytes per kind, or
    ``input_bytes``, which counts as CPU, where it cannot tell the kinds apart.
    """

    stage: Name
    tasks: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    done: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    after: Annotated[list[Name], msgspec.Meta(max_length=4096)] = []
    input_bytes: Bytes = 0
    usage: KindAmounts = KindAmounts()

    def __post_init__(self) -> None:
        """Raises: ValueError: an amount that is no number from 0 on."""
        if not self.usage.is_valid():
            raise ValueError("usage: expected non-negative numbers")

    def row(self) -> dict[str, object]:
        """As a status shows it: every key, also where the value is the one that a message leaves out."""
        return {**msgspec.structs.asdict(self), "usage": msgspec.structs.asdict(self.usage)}
