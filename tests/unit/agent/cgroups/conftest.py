"""A prepared tree on a fake file system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.cgroups import Cgroup, CgroupTree, Disk
from tests.fakes.fake_cgroups import FakeCgroups

#: The fake is of the class that was asked for.
Make = Callable[..., tuple[Any, CgroupTree]]
DISK = Disk("vda", 254, 0)


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes trees; ``of`` is the class of the fake, which has the tree's disks; other keywords are the fake's."""
    made: list[FakeCgroups] = []

    def prepared(
        disks: Sequence[Disk] = (DISK,), of: type[FakeCgroups] = FakeCgroups, **fields: Any
    ) -> tuple[FakeCgroups, CgroupTree]:
        fake = of(disks=[disk.number for disk in disks], **fields)
        made.append(fake)
        tree = CgroupTree(Path("/fake/cgroup"), disks, fake)
        tree.prepare()
        fake.writes.clear()
        return fake, tree

    yield prepared
    for fake in made:
        fake.close()


@pytest.fixture
def made(make: Make) -> tuple[FakeCgroups, CgroupTree]:
    return make()


@pytest.fixture
def fake(made: tuple[FakeCgroups, CgroupTree]) -> FakeCgroups:
    return made[0]


@pytest.fixture
def tree(made: tuple[FakeCgroups, CgroupTree]) -> CgroupTree:
    return made[1]


@pytest.fixture
def cgroup(tree: CgroupTree) -> Cgroup:
    return tree.create("a")
