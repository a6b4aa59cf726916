"""``cpuset.*``: the processors of a cgroup."""

from __future__ import annotations

from agent.cgroups.files import Interface, V2Controller


def parse_cpus(text: str) -> frozenset[int]:
    """Parse a list of processors: ``0-3,8`` → {0, 1, 2, 3, 8}.

    Raises:
        ValueError: the text is not such a list.
    """
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


class Cpus(Interface):
    """A list of processors ↔ a set; the empty set means the parent's processors."""

    def sanitize_get(self, value: str) -> frozenset[int]:
        """Parse the kernel's text."""
        return parse_cpus(value)

    def sanitize_set(self, value: frozenset[int]) -> str:
        """Format a value for the kernel, which ignores an empty write."""
        return ",".join(map(str, sorted(value))) or "\n"


class CpusetFiles(V2Controller):
    """The cpuset controller."""

    cpus = Cpus("cpuset.cpus")  # 5.0
    # 5.0; the parent's, if none of the wanted ones is available
    effective = Cpus("cpuset.cpus.effective", readonly=True)
