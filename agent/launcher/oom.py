"""The OOM score of a running container that was adopted or promoted."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

from agent.cgroup_root import members
from agent.launcher.rounds import each_once


def set_oom_score_adj(cgroup: Path, value: int) -> None:
    """Set the OOM score (-1000 to 1000; Linux 2.6.36) of every process of a cgroup and those below it.

    Children inherit it. Lowering a score takes CAP_SYS_RESOURCE; without it, this does nothing. A cgroup that vanished
    has no processes.
    """

    def change(pid: int) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # ended, or not permitted
            _set(pid, cgroup.name, value)

    each_once(lambda _: members(cgroup), change)


def _set(pid: int, cgroup: str, value: int) -> None:
    """Set the score through the process's directory, which stays the same process's if the pid is reused."""
    process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    inside = functools.partial(os.open, dir_fd=process)
    try:
        with open("cgroup", encoding="utf-8", opener=inside) as file:
            if cgroup not in file.read().split("0::", 1)[-1].strip().split("/"):
                return
        with open("oom_score_adj", "w", encoding="ascii", opener=inside) as file:
            file.write(str(value))
    finally:
        os.close(process)
