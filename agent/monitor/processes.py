"""Memory of a cgroup's processes where the memory controller is not there to say it."""

from __future__ import annotations

import resource
from pathlib import Path

_PAGE_BYTES = resource.getpagesize()


def memory_of(cgroup: Path, proc: Path = Path("/proc")) -> int:
    """The sum of the processes' resident memory less what they share with files, in bytes.

    Read from proc_pid_statm(5) at once: psutil asks when each process began as well, for four times the time.
    """
    try:
        pids = (cgroup / "cgroup.procs").read_text().split()
    except OSError:
        return 0
    return sum(_own_pages(proc / pid / "statm") for pid in pids) * _PAGE_BYTES


def _own_pages(statm: Path) -> int:
    """Pages of a process that are no file's, or 0 where it has ended."""
    try:
        _, resident, shared, *_ = statm.read_bytes().split()
    except OSError:
        return 0
    return max(0, int(resident) - int(shared))
