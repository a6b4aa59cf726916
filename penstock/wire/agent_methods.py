"""The methods between frameworks and the agent that the agent answers itself, and its notifications.

This is their only declaration: the server (:mod:`agent.frameworks`), docs/protocol.md and the tests of access follow
from it. A notification is declared by its type (:class:`~penstock.wire.agent_api.Notice`). The greeting
is declared in :mod:`penstock.wire.connection_api`, the methods of containers in
:mod:`penstock.wire.container_methods`, those of jobs of commands in :mod:`penstock.wire.job_methods`,
those that the agent relays to the master in :mod:`penstock.wire.relayed_methods`.
"""

from __future__ import annotations

from typing import Any

from penstock.model.container import Ended, EndedBy
from penstock.model.resources import ResourceKind
from penstock.model.work import MonotaskSpec
from penstock.wire import agent_api as api
from penstock.wire import connection_api as connection
from penstock.wire import container_methods as containers
from penstock.wire import job_methods as jobs
from penstock.wire import jobs_api
from penstock.wire.errors import ErrorBody, ErrorCode
from penstock.wire.method import USERS, Caller, declare, methods_of

# fmt: off
_MONOTASKS = [
    MonotaskSpec(id=1, kind=ResourceKind.DISK, input_bytes=1 << 20, stage="read"),
    MonotaskSpec(id=2, kind=ResourceKind.CPU, input_bytes=1 << 20, stage="map", task="m-1"),
]

# ---------------------------------------------------------------- connection
HELLO = connection.HELLO
STATUS = declare(
    "status", api.Nothing(), api.Status(status={"node": "alpha"}), Caller.EVERYBODY, "The status document, see below."
)

# ---------------------------------------------------------------- jobs
REGISTER_JOB = jobs.REGISTER_JOB
END_JOB = jobs.END_JOB
LEAVE_JOB = declare("leave_job", jobs_api.LeaveJob(job="j-1"), api.Done(), Caller.OWNER)
LEND = declare(
    "lend", jobs_api.Lend(job="j-1"), api.Launched(container="c-3", pid=4712, not_enforced={}), Caller.PROCESS_OWNER
)

# ---------------------------------------------------------------- monotasks
SUBMIT = declare("submit", api.Submit(job="j-1", monotasks=_MONOTASKS), api.Submitted(accepted=2), Caller.OWNER)
COMPLETE = declare("complete", api.Complete(job="j-1", monotasks=[api.Completion(id=1)]), api.Done(), Caller.OWNER)
CANCEL = declare("cancel", api.Cancel(job="j-1", ids=[2]), api.Done(), Caller.OWNER)

# ---------------------------------------------------------------- placement
PLACE = jobs.PLACE
TASKS_DONE = declare(
    "tasks_done", api.TaskRefs(job="j-1", tasks=["m-1"]), api.Done(), Caller.OWNER,
    "Placed tasks that the framework executed itself are done: what their nodes held for them is free.",
)
CANCEL_TASKS = jobs.CANCEL_TASKS
PROGRESS = jobs.PROGRESS

# ---------------------------------------------------------------- containers
LAUNCH = containers.LAUNCH
ADOPT = containers.ADOPT
RESIZE = containers.RESIZE
FOLLOW = containers.FOLLOW
ATTACH = containers.ATTACH
SIGNAL = containers.SIGNAL
KILL = containers.KILL
OUTPUT = containers.OUTPUT

# ---------------------------------------------------------------- notifications
_ENDED = Ended(by=EndedBy.EXIT, exit_status=0, cpu_seconds=0.5, memory_peak_bytes=8 << 20, wall_seconds=1.0)
#: agent → framework: an example of each
NOTICES: tuple[api.Notice, ...] = (
    api.JobWaiting(job="j-1", why="it wants 2 GiB reserved, 1 GiB of 4 GiB is not reserved"),
    api.JobAdmitted(job="j-1"),
    api.CancelledBy(job="j-1", by="eve"),
    api.Grants(job="j-1", ids=[1]),
    api.Recall(job="j-1", kind=ResourceKind.CPU),
    api.Rejected(
        job="j-1", ids=[1],
        error=ErrorBody(ErrorCode.BAD_REQUEST, "unknown job 'j-1'", "job", "register_job first"),
    ),
    jobs_api.SlotTakenBack(
        job="j-1", id=1, kind=ResourceKind.CPU,
        why="its cpu slot was held for 75 s, and job j-2 of another user had waited 31 s for its turn; "
        "slot_held_max_s is 60",
    ),
    api.TaskPlaced(job="j-1", task="m-1", node="alpha"),
    api.TaskEnded(job="j-1", task="m-1", node="alpha", ended=_ENDED),
    api.TaskStuck(job="j-1", task="e-1", helper="e-2", node="beta"),
    api.ContainerEnded(container="c-1", ended=_ENDED),
)
# fmt: on
#: framework → agent
REQUESTS = methods_of(globals(), *USERS)
#: agent → framework
NOTIFICATIONS: dict[str, type[api.Notice]] = {each.METHOD: type(each) for each in NOTICES}
#: Messages of every monotask: name → parameters, which are decoded directly from the bytes.
TYPED: dict[str, type[Any]] = {
    SUBMIT.name: SUBMIT.params,
    COMPLETE.name: COMPLETE.params,
    api.Grants.METHOD: api.Grants,
}
