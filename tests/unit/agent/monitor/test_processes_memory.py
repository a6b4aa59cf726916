"""Memory of processes, where no controller counts it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from agent.monitor.sampler import memory_of


def test_it_is_the_memory_of_the_processes_without_files(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n{2**22 + 1}\n")  # no process has the second number
    before = psutil.Process().memory_info()
    found = memory_of(tmp_path)
    after = psutil.Process().memory_info()
    low, high = sorted((before.rss - before.shared, after.rss - after.shared))
    assert low - (4 << 20) <= found <= high + (4 << 20)  # the interpreter takes and gives back meanwhile


def test_one_that_has_just_ended_counts_nothing(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "c"
    for pid, statm in (("1", "900 300 100 1 0 5 0\n"), ("2", "900 50 100 1 0 5 0\n"), ("4", "0 0 0 0 0 0 0\n")):
        (proc / pid).mkdir(parents=True)
        (proc / pid / "statm").write_text(statm)
    cgroup.mkdir()
    (cgroup / "cgroup.procs").write_text("1\n2\n3\n4\n")  # the second shares more than it has of its own; 3 has ended
    assert memory_of(cgroup, proc) == 200 * os.sysconf("SC_PAGE_SIZE")
    assert memory_of(tmp_path / "gone") == 0
