"""UBIS on the node, by example (§IV.C and what its implementation in YARN decided)."""

from __future__ import annotations

from agent.core.ledger import Ledger, take_stock
from agent.core.preemption import Preemption
from agent.core.records import ContainerRecord, ContainerState
from agent.core.settings import Thresholds
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from penstock.model import Capacity, ContainerSpec

CAPACITY = Capacity(cores=4, memory_bytes=1000)


def container(
    name: str, order: int, *, opportunistic: bool, memory: int = 0, cores: float = 0.0,
    state: ContainerState = ContainerState.RUNNING,
) -> ContainerRecord:  # fmt: skip
    spec = ContainerSpec(argv=("x",), memory_bytes=memory, cpu_cores=cores, opportunistic=opportunistic)
    return ContainerRecord(container=name, user="u", spec=spec, opportunistic=opportunistic, order=order, state=state)


def snapshot(host: HostUse | None = None, **uses: ContainerUse) -> Snapshot:
    return Snapshot(0.0, 1.0, host or HostUse(), uses)


def memory(**used: int) -> Snapshot:
    return snapshot(**{name: ContainerUse(memory_bytes=amount) for name, amount in used.items()})


def victims(
    containers: list[ContainerRecord], taken: Snapshot, policy: Preemption | None = None, granted: int = 0
) -> list[str]:
    policy = policy or Preemption(Thresholds(memory=0.9, cpu=0.9, disk=0.9, network=0.9), preempt_after=3)
    ledger: Ledger = take_stock(CAPACITY, containers, [], taken)
    return [victim.container for victim in policy.victims(taken, containers, ledger, granted)]


REGULAR = container("r", 1, opportunistic=False, memory=800)
OLD = container("old", 2, opportunistic=True, memory=200)
NEW = container("new", 3, opportunistic=True, memory=200)


def test_memory_goes_at_the_first_sample_and_newest_first() -> None:
    assert victims([REGULAR, OLD, NEW], memory(r=750, old=150, new=150)) == ["new"]


def test_as_many_as_cover_the_excess_and_no_more() -> None:
    assert victims([REGULAR, OLD, NEW], memory(r=800, old=200, new=90)) == ["new", "old"]  # 190 over, new has 90
    assert victims([REGULAR, OLD, NEW], memory(r=710, old=100, new=100)) == ["new"]  # 10 over


def test_nobody_goes_below_the_threshold_or_while_nothing_is_over_allocated() -> None:
    assert victims([REGULAR, OLD, NEW], memory(r=700, old=100, new=100)) == []
    fits = [container("r", 1, opportunistic=False, memory=700), container("o", 2, opportunistic=True, memory=200)]
    assert victims(fits, memory(r=950, o=10)) == []  # busy with what was promised: 700 + 200 fit


def test_regular_work_is_never_a_victim() -> None:
    assert victims([REGULAR, container("s", 9, opportunistic=False, memory=200)], memory(r=900, s=300)) == []


def test_the_dying_count_as_gone() -> None:
    dying = container("new", 3, opportunistic=True, memory=200, state=ContainerState.STOPPING)
    assert victims([REGULAR, OLD, dying], memory(r=700, old=150, new=150)) == []


def cpu(cores_regular: float, cores_opportunistic: float) -> Snapshot:
    return snapshot(r=ContainerUse(cpu_cores=cores_regular), o=ContainerUse(cpu_cores=cores_opportunistic))


def test_cpu_goes_at_the_third_breach_in_a_row() -> None:
    policy = Preemption(Thresholds(cpu=0.9), preempt_after=3)
    both = [container("r", 1, opportunistic=False, cores=3), container("o", 2, opportunistic=True, cores=2)]
    assert victims(both, cpu(2.5, 1.5), policy) == []
    assert victims(both, cpu(2.5, 1.5), policy) == []
    assert victims(both, cpu(1.0, 1.0), policy) == []  # a pause starts the count again
    assert victims(both, cpu(2.5, 1.5), policy) == []
    assert victims(both, cpu(2.5, 1.5), policy) == []
    assert victims(both, cpu(2.5, 1.5), policy) == ["o"]


def test_slots_that_frameworks_hold_count_as_allocated_cores() -> None:
    policy = Preemption(Thresholds(cpu=0.9), preempt_after=1)
    both = [container("r", 1, opportunistic=False), container("o", 2, opportunistic=True, cores=1)]
    assert victims(both, cpu(2.9, 0.9), policy, granted=0) == []
    assert victims(both, cpu(2.9, 0.9), policy, granted=4) == ["o"]


def test_disk_goes_only_where_opportunistic_work_uses_it() -> None:
    policy = Preemption(Thresholds(disk=0.9), preempt_after=1)
    both = [container("r", 1, opportunistic=False), container("o", 2, opportunistic=True)]
    busy = HostUse(disk_busy=1.0)
    innocent = snapshot(busy, r=ContainerUse(disk_bytes_per_s=100), o=ContainerUse())
    guilty = snapshot(busy, r=ContainerUse(disk_bytes_per_s=100), o=ContainerUse(disk_bytes_per_s=50))
    assert victims(both, innocent, policy) == []
    assert victims(both, guilty, policy) == ["o"]
    assert victims(both, snapshot(HostUse(disk_busy=None), o=ContainerUse(disk_bytes_per_s=50)), policy) == []


def test_the_reason_has_the_numbers() -> None:
    policy = Preemption(Thresholds(memory=0.9), preempt_after=3)
    taken = memory(r=750, old=150, new=150)
    everybody = [REGULAR, OLD, NEW]
    (victim,) = policy.victims(taken, everybody, take_stock(CAPACITY, everybody, [], taken), 0)
    assert victim.resource == "memory"
    assert "1.03 KiB of 1000 B" in victim.reason and "T_preempt 0.9" in victim.reason
