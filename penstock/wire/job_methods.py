"""The methods between frameworks and the agent about jobs of commands.

They are apart from :mod:`penstock.wire.agent_methods`, of which they are a part, because ``penstock submit`` starts
sooner without the others.
"""

from __future__ import annotations

from penstock.model.container import ContainerSpec
from penstock.model.resources import KindAmounts
from penstock.model.work import StageProgress, TaskRequest
from penstock.wire import job_api as api
from penstock.wire.connection_api import Done
from penstock.wire.method import Caller, declare

# fmt: off
_TASK = TaskRequest(
    task="m-1", usage=KindAmounts(cpu=1048576.0), memory_bytes=64 << 20,
    command=ContainerSpec(argv=("wc", "-w", "in.txt"), cwd="/srv/data"),
)

REGISTER_JOB = declare(
    "register_job", api.RegisterJob(name="wordcount", memory_bytes=256 << 20),
    api.JobRegistered(job="j-1", admitted=True), Caller.OWNER,
)
END_JOB = declare(
    "end_job", api.EndJob(job="j-1"), Done(), Caller.OWNER,
    "The job is over: its queued monotasks are gone, its slots are free, its placed tasks are withdrawn.",
)
PLACE = declare("place", api.Place(job="j-1", stage="map", tasks=[_TASK]), Done(), Caller.OWNER)
CANCEL_TASKS = declare(
    "cancel_tasks", api.TaskRefs(job="j-1", tasks=["m-1"]), Done(), Caller.OWNER,
    "Tasks that are no longer wanted, placed or not. Each is then answered by `task_ended`.",
)
PROGRESS = declare(
    "progress",
    api.Progress(
        job="j-1",
        stages=[
            StageProgress(stage="map", tasks=8, done=6, usage=KindAmounts(cpu=2e6, disk=1e6)),
            StageProgress(stage="reduce", tasks=2, after=["map"]),
        ],
    ),
    Done(), Caller.OWNER,
)
# fmt: on
