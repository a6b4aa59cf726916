"""The bed of the benchmarks, with an agent that has been imported before: there that takes ten seconds."""

from __future__ import annotations

from pathlib import Path

from bench.enforcement import bed
from tests.integration.warm import run


class Bed(bed.Bed):
    """As its base."""

    def _run(self, arguments: list[str], environment: dict[str, str], log: Path) -> bed.Running:
        return run("agent", arguments, environment, log)
