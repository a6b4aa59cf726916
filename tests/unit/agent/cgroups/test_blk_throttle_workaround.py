"""A limit of disks is lowered while I/O is held, on kernels that need it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from agent.cgroups import blk_throttle_workaround
from agent.core.confinement import Confinement
from agent.limit_enforcer import LimitEnforcer
from tests.unit.agent.cgroups.conftest import Make

FAST = Confinement(disk_read_bytes_per_s=16_000_000, disk_write_bytes_per_s=16_000_000, cpu_weight=50)
SLOW = Confinement(disk_read_bytes_per_s=4_000_000, disk_write_bytes_per_s=4_000_000, cpu_weight=90)
HELD = "254:0 riops=2 wiops=2"
GOES_ON = "254:0 riops=max wiops=max"


@pytest.mark.parametrize(
    ("release", "needed"),
    [
        ("6.1.0-56-cloud-amd64", True), ("6.5.0-14-generic", True), ("6.1", True), ("5.15.0", False),
        ("6.0.19", False), ("6.6.0", False), ("6.12.9+bpo-amd64", False), ("10.2.1", False), ("odd", False),
    ],
)  # fmt: skip
def test_the_kernels_that_need_it(release: str, needed: bool) -> None:
    assert blk_throttle_workaround.needed(release) is needed


@pytest.mark.parametrize(
    ("before", "wanted", "falls"),
    [
        (FAST, SLOW, True),
        (FAST, Confinement(), True),
        (FAST, replace(FAST, disk_write_bytes_per_s=15_000_000), True),
        (FAST, replace(FAST, disk_write_bytes_per_s=None), True),
        (SLOW, FAST, False),
        (Confinement(), SLOW, False),
        (FAST, replace(FAST, cpu_weight=7), False),
        (None, SLOW, False),
        (replace(FAST, disk_read_ops_per_s=100), SLOW, False),
        (replace(FAST, disk_write_ops_per_s=100), SLOW, False),
    ],
)
def test_what_falls(before: Confinement | None, wanted: Confinement, falls: bool) -> None:
    assert blk_throttle_workaround.falls(before, wanted) is falls


async def changed(make: Make, wanted: Confinement, *, holds_disks: bool, before: Confinement = FAST) -> list[str]:
    """What is written to io.max, with "cpu" where the CPU was told; then what stands there is what was wanted."""
    fake, tree = make()
    told: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: told.set_result(why), holds_disks=holds_disks)
    await limit_enforcer.create("a", before)
    fake.writes.clear()
    limit_enforcer.confine("a", wanted)
    assert await told == {}
    written = [text if path.endswith("io.max") else "cpu" for path, text in fake.writes]
    assert tree.get("a").confine(wanted).written == ()
    return written


async def test_io_is_held_while_it_is_lowered_and_nothing_else_waits_for_that(make: Make) -> None:
    assert await changed(make, SLOW, holds_disks=True) == [
        "cpu", HELD, "254:0 rbps=4000000", "254:0 wbps=4000000", GOES_ON,
    ]  # fmt: skip


async def test_it_is_not_held_without_need(make: Make) -> None:
    plain = ["254:0 rbps=4000000", "254:0 wbps=4000000"]
    assert await changed(make, SLOW, holds_disks=False) == ["cpu", *plain]
    assert await changed(make, SLOW, holds_disks=True, before=Confinement(cpu_weight=50)) == ["cpu", *plain]


async def test_operations_that_are_limited_with_it_are_so_afterwards(make: Make) -> None:
    wanted = replace(SLOW, disk_read_ops_per_s=100)
    assert (await changed(make, wanted, holds_disks=True))[-1] == "254:0 riops=100 wiops=max"


async def test_one_that_ends_meanwhile_is_no_failure(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None, holds_disks=True)
    await limit_enforcer.create("a", FAST)
    limit_enforcer.confine("a", SLOW)
    await asyncio.sleep(0)
    fake.vanish("containers/a")
    await limit_enforcer.remove("a")
