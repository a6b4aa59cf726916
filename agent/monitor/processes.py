"""Memory of a cgroup's processes where the memory controller is not there to say it."""

from __future__ import annotations

from pathlib import Path

import psutil


def memory_of(cgroup: Path) -> int:
    """The sum of the processes' resident memory less what they share with files, in bytes."""
    try:
        pids = [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]
    except OSError:
        return 0
    total = 0
    for pid in pids:
        try:
            memory = psutil.Process(pid).memory_info()
        except psutil.Error:
            continue  # it ended between the two reads
        total += max(0, memory.rss - memory.shared)
    return total
