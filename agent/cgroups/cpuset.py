"""``cpuset.*``: which processors."""

from __future__ import annotations

from agent.cgroups.files import Interface, V2Controller


def parse_cpus(text: str) -> frozenset[int]:
    """``0-3,8`` → {0, 1, 2, 3, 8}.

    Raises:
        ValueError: it is no such list.
    """
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


class Cpus(Interface):
    """A list of processors ↔ a set; the empty one means those of the parent."""

    def sanitize_get(self, value: str) -> frozenset[int]:
        """From the kernel."""
        return parse_cpus(value)

    def sanitize_set(self, value: frozenset[int]) -> str:
        """To the kernel, for which a write of nothing would be none."""
        return ",".join(map(str, sorted(value))) or "\n"


class CpusetFiles(V2Controller):
    """The cpuset controller."""

    cpus = Cpus("cpuset.cpus")  # 5.0
    effective = Cpus("cpuset.cpus.effective", readonly=True)  # 5.0; the parent's where none of ours is there
