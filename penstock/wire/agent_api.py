"""Messages between frameworks or the command and an agent, over its Unix socket.

:mod:`penstock.wire.agent_methods` declares the methods whose parameters and results these are. Those of
connections, jobs and containers have modules of their own, which commands import alone; all are part of this interface.
"""

from typing import Annotated, Any

import msgspec

from penstock.model.container import MOST_AT_ONCE
from penstock.model.resources import ResourceKind
from penstock.model.work import Bytes, MonotaskId, MonotaskSpec, StageProgress
from penstock.wire.connection_api import (
    PROTOCOL,
    Done,
    Hello,
    Nothing,
    Notice,
    Params,
    Result,
    Welcome,
)
from penstock.wire.container_api import (
    MOST_OFFSET,
    Adopt,
    Attach,
    ContainerEnded,
    ContainerRef,
    Follow,
    Launch,
    Launched,
    Output,
    ReadOutput,
    Resize,
    Resized,
    SignalContainer,
)
from penstock.wire.errors import ErrorBody
from penstock.wire.job_api import (
    CancelledBy,
    EndJob,
    JobAdmitted,
    JobRegistered,
    JobWaiting,
    Place,
    Progress,
    RegisterJob,
    TaskEnded,
    TaskPlaced,
    TaskRefs,
    TaskStuck,
)

__all__ = [
    "Adopt",
    "Attach",
    "Cancel",
    "CancelledBy",
    "Complete",
    "Completion",
    "ContainerEnded",
    "ContainerRef",
    "Done",
    "EndJob",
    "Follow",
    "Grants",
    "Hello",
    "JobAdmitted",
    "JobRegistered",
    "JobWaiting",
    "Launch",
    "Launched",
    "Leased",
    "MOST_OFFSET",
    "Nothing",
    "Notice",
    "Output",
    "PROTOCOL",
    "Params",
    "Place",
    "Progress",
    "ReadOutput",
    "Recall",
    "RegisterJob",
    "Rejected",
    "Resize",
    "Resized",
    "Result",
    "SignalContainer",
    "StageProgress",
    "Status",
    "Submit",
    "Submitted",
    "TaskEnded",
    "TaskPlaced",
    "TaskRefs",
    "TaskStuck",
    "Welcome",
]


# ---------------------------------------------------------------- monotasks


class Submit(Params, frozen=True):
    """Queue ready monotasks of a job. Grants come as notifications, possibly before the response."""

    job: str
    monotasks: Annotated[list[MonotaskSpec], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Submitted(Result, frozen=True):
    """The number of accepted monotasks: all of them, as a request is accepted or refused as a whole."""

    accepted: int


class Rejected(Notice, frozen=True):
    """Agent → framework: a ``submit`` that was sent as a notification was refused as a whole.

    ``ids`` are its monotasks, also where the rest was not understood, except those with invalid ids.
    """

    METHOD = "rejected"
    job: str
    ids: list[MonotaskId]
    error: ErrorBody


class Leased(Params, frozen=True):
    """Further monotasks, never submitted, that ran one after the other in a slot while its lease lasted.

    Their number, the number of failed ones, total bytes and execution time of the others, and the last one's age.
    """

    monotasks: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    failed: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    input_bytes: Bytes = 0
    execution_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    began_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Completion(Params, frozen=True):
    """A granted monotask ended. Failed ones give the slot back and do not count for the processing rate.

    ``then`` is the monotask that started in its slot under the lease of its grant. ``execution_s`` is its duration, for
    a report that is sent later than its end; reports of one lease may be sent together, in order. ``leased`` describes
    the other monotasks that ran in the slot before it was given back or passed on, if the grant allowed to ``keep`` it.
    """

    id: MonotaskId
    failed: bool = False
    then: MonotaskId | None = None
    execution_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    leased: Leased | None = None


class Complete(Params, frozen=True):
    """Granted monotasks ended; the agent frees their slots when it reads this."""

    job: str
    monotasks: Annotated[list[Completion], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Cancel(Params, frozen=True):
    """Withdraw monotasks: queued ones leave the queue, granted ones give their slot back."""

    job: str
    ids: Annotated[list[MonotaskId], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Grants(Notice, frozen=True):
    """Agent → framework: these monotasks may run now, until ``complete`` or ``cancel``.

    For ``lease_s`` seconds each slot may be passed on to queued monotasks of the same job, kind and connection without
    asking: see ``then`` of a completion. With ``keep``, no other work waits, and the framework may keep the slots idle
    meanwhile, for monotasks that were not submitted: see ``leased`` of a completion. A framework may ignore leases.
    """

    METHOD = "grant"
    job: str
    ids: list[MonotaskId]
    lease_s: float = 0.0
    keep: bool = False


class Recall(Notice, frozen=True):
    """Agent → framework: the leases of a job end now, as work with precedence waits. Running monotasks may run on.

    With ``idle`` the waiting work has no precedence: only idle slots are given back, and none may be kept idle.
    """

    METHOD = "recall"
    job: str
    kind: ResourceKind
    idle: bool = False


# ---------------------------------------------------------------- state


class Status(Result, frozen=True):
    """The same document as ``GET /status`` (docs/protocol.md lists its keys)."""

    status: dict[str, Any]
