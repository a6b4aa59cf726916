"""A command in a scope of systemd's: a cgroup of its own beside the caller's (systemd.scope(5))."""

from __future__ import annotations

import os


def command(unit: str, *, for_containers: bool = False) -> list[str]:
    """Return the words that start the command behind them in a new scope, as the same process.

    Root's scopes are in ``system.slice``, others' in ``app.slice`` of their own systemd. The scope ends with its last
    process.

    Args:
        unit: the name of the scope, without its ending.
        for_containers: the command may make cgroups in it, and it is beside the slices, not in one: opportunistic work
            that yields to what is beside its scope yields to all slices then.
    """
    user = [] if os.geteuid() == 0 else ["--user"]
    more = ["--slice=-.slice", "--property=Delegate=yes"] if for_containers else []
    return ["systemd-run", *user, "--scope", "--quiet", "--collect", *more, f"--unit={unit}"]
