"""Containers whose limits are all enforced, and the output of their processes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent.cgroups import Cgroup
from agent.core.confinement import Confinement
from tests.contract.cgroup_beds import Bed, real_bed


@contextmanager
def whole_bed() -> Iterator[Bed]:
    """A tree with every controller."""
    bed = real_bed()
    assert bed.missing == {}
    yield bed
    bed.close()


def confined(bed: Bed, name: str, **fields: Any) -> Cgroup:
    """Start a container and wait until all of its settings are enforced."""
    cgroup = bed.tree.create(name)
    assert cgroup.confine(Confinement(**fields)).failed == {}
    return cgroup


def wait_for_line(process: subprocess.Popen[str], word: str) -> None:
    """Wait until the process prints this line."""
    assert process.stdout is not None and process.stdout.readline() == f"{word}\n"
