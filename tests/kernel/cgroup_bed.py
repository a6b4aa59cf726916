"""Containers whose limits all hold, and what their processes say."""

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
    """A container all of whose settings are enforced."""
    cgroup = bed.tree.create(name)
    assert cgroup.confine(Confinement(**fields)).failed == {}
    return cgroup


def hear(process: subprocess.Popen[str], word: str) -> None:
    """Wait until it says so."""
    assert process.stdout is not None and process.stdout.readline() == f"{word}\n"
