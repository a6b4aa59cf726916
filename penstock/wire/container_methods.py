"""The methods between commands and the agent about containers.

They are apart from :mod:`penstock.wire.agent_methods`, of which they are a part, because ``penstock run`` starts sooner
without the others.
"""

from __future__ import annotations

from penstock.model.container import ContainerSpec, Limits
from penstock.model.profile import Profile
from penstock.wire import container_api as api
from penstock.wire.connection_api import Done
from penstock.wire.method import Caller, declare

# fmt: off
_SPEC = ContainerSpec(
    argv=("sort", "big.txt"), cwd="/srv/data", limits=Limits(cpu_cores=0.5, memory_max_bytes=64 << 20), detach=True
)

LAUNCH = declare(
    "launch", api.Launch(container=_SPEC), api.Launched(container="c-1", pid=4711, not_enforced={}), Caller.EVERYBODY
)
ADOPT = declare(
    "adopt", api.Adopt(pid=4711, container=ContainerSpec(argv=("postgres",), memory_bytes=256 << 20)),
    api.Launched(container="c-2", pid=4711, not_enforced={}), Caller.PROCESS_OWNER,
)
RESIZE = declare(
    "resize", api.Resize(container="c-1", limits={"cpu_cores": 1.5, "memory_max_bytes": None}),
    api.Resized(limits=Limits(cpu_cores=1.5), not_enforced={}), Caller.OWNER,
)
FOLLOW = declare(
    "follow",
    api.Follow(container="c-1", profile=Profile(cpu_cores=(1.0, 2.0, 0.5), memory_bytes=(64 << 20, 128 << 20))),
    Done(), Caller.OWNER,
)
ATTACH = declare(
    "attach", api.Attach(container="c-1"), Done(), Caller.OWNER,
    "Be told how a container ends (at once, if it has). One whose connection is gone becomes this one's, and ends with "
    "it, unless `own` is false. A task that the master placed, and a container with `detach`, never do.",
)
SIGNAL = declare("signal", api.SignalContainer(container="c-1", signal=15), Done(), Caller.OWNER)
KILL = declare(
    "kill", api.ContainerRef(container="c-1"), Done(), Caller.OWNER,
    "Kill all processes of a container; it ends by `cancelled`.",
)
OUTPUT = declare("output", api.ReadOutput(container="c-1"), api.Output(data=b"done\n", offset=0, size=5), Caller.OWNER)
# fmt: on
