"""What protects all containers together: it grows with the first that needs it, and shrinks with the next sample."""

from __future__ import annotations

from agent.core.confinement import Confinement
from agent.core.snapshot import Snapshot
from agent.limit_enforcer import LimitEnforcer
from tests.unit.agent.cgroups.conftest import Make

MIB = 1 << 20
LOW = "/fake/cgroup/containers/memory.low"
SAMPLE = Snapshot(at=0.0, interval_s=1.0)


async def test_a_container_that_follows_another_changes_nothing_above_it(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    limit_enforcer.cap(memory_bytes=1 << 30, cores=None, pids=None)
    protects = Confinement(memory_low_bytes=8 * MIB)
    await limit_enforcer.create("a", protects)
    assert fake.read(LOW.encode()).strip() == str(8 * MIB)
    fake.writes.clear()
    await limit_enforcer.remove("a")
    await limit_enforcer.create("b", protects)
    limit_enforcer.retry(SAMPLE)
    assert [path for path, _ in fake.writes if "/a/" not in path and "/b/" not in path] == []
    await limit_enforcer.create("c", protects)
    assert fake.read(LOW.encode()).strip() == str(16 * MIB)
    await limit_enforcer.remove("b")
    await limit_enforcer.remove("c")
    limit_enforcer.retry(SAMPLE)
    assert fake.read(LOW.encode()).strip() == "0"
