"""The memory of a fake cgroup: anonymous memory, and page cache that can be reclaimed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.fakes.fake_cgroup_files import PAGE_BYTES


@dataclass(slots=True)
class Memory:
    """Anonymous memory, which stays (the fake has no swap), and page cache."""

    anon_bytes: int = 0
    cache_bytes: int = 0

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.anon_bytes + other.anon_bytes, self.cache_bytes + other.cache_bytes)

    def count(self, files: dict[str, str]) -> None:
        """Write the amounts into a cgroup's counters."""
        current = self.anon_bytes + self.cache_bytes
        files["memory.current"] = f"{current}\n"
        if "memory.peak" in files:
            files["memory.peak"] = f"{max(current, int(files['memory.peak']))}\n"
        said = {"anon": self.anon_bytes, "file": self.cache_bytes, "inactive_file": self.cache_bytes}
        stat = dict(line.split() for line in files["memory.stat"].splitlines()) | said
        files["memory.stat"] = "".join(f"{key} {value}\n" for key, value in stat.items())


def reclaim(memories: Iterable[Memory], wanted_bytes: int) -> int:
    """Reclaim page cache in whole pages, at most all of it; return the reclaimed bytes."""
    wanted = -(-wanted_bytes // PAGE_BYTES) * PAGE_BYTES
    freed = 0
    for memory in memories:
        taken = min(memory.cache_bytes, wanted - freed)
        memory.cache_bytes -= taken
        freed += taken
    return freed
