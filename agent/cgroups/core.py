"""``cgroup.*`` and ``pids.*``: processes, controllers, freezing, killing."""

from __future__ import annotations

from agent.cgroups.files import Flag, FlatKeyed, MaxOrInteger, Number, V2Controller, Words


class CoreFiles(V2Controller):
    """The files that every cgroup has, regardless of its controllers."""

    procs = Words("cgroup.procs")
    available = Words("cgroup.controllers", readonly=True)
    subtree_control = Words("cgroup.subtree_control")
    events = FlatKeyed("cgroup.events")
    freeze = Flag("cgroup.freeze")  # 5.2
    kill = Flag("cgroup.kill", writeonly=True)  # 5.14


class PidsFiles(V2Controller):
    """The pids controller."""

    max = MaxOrInteger("pids.max")  # 4.3
    current = Number("pids.current", readonly=True)  # 4.3
