"""``cgroup.*`` and ``pids.*``: processes, controllers, freezing, killing."""

from __future__ import annotations

from agent.cgroups.files import FlatKeyed, MaxOrInteger, V2Controller, Word, Words


class CoreFiles(V2Controller):
    """Files that every cgroup has, whatever its controllers."""

    procs = Words("cgroup.procs")
    available = Words("cgroup.controllers", readonly=True)
    subtree_control = Words("cgroup.subtree_control")
    events = FlatKeyed("cgroup.events")
    freeze = Word("cgroup.freeze")  # 5.2
    kill = Word("cgroup.kill", writeonly=True)  # 5.14
    pids_max = MaxOrInteger("pids.max")
    pids_current = Word("pids.current", readonly=True)
