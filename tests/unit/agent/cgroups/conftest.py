"""A prepared tree on a fake file system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.cgroups import Cgroup, CgroupTree, Disk
from tests.fakes.fake_cgroups import FakeCgroups

Make = Callable[..., tuple[FakeCgroups, CgroupTree]]
DISK = Disk("vda", 254, 0)


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes trees; keywords are those of FakeCgroups."""
    made: list[FakeCgroups] = []

    def prepared(disks: list[Disk] | None = None, **fields: object) -> tuple[FakeCgroups, CgroupTree]:
        fake = FakeCgroups(**fields)  # type: ignore[arg-type]
        made.append(fake)
        tree = CgroupTree(Path("/fake/cgroup"), [DISK] if disks is None else disks, fake)
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
