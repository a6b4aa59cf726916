"""Groups of containers on a real kernel: what a container leaves of its weight goes to its group first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from agent.cgroups import Cgroup
from agent.core.confinement import Confinement
from tests.contract.cgroup_beds import Bed
from tests.kernel.cgroup_bed import wait_for_line, whole_bed
from tests.kernel.test_ranks import WINDOWS, seconds

pytestmark = [pytest.mark.timeout(300), pytest.mark.measured]
#: All are on one processor: time that the machine's host takes from it is taken from all of them.
BURN = "import os\nos.sched_setaffinity(0, {0})\nprint('up', flush=True)\nwhile True: pass"
SECONDS = 4.0


@pytest.fixture
def bed() -> Iterator[Bed]:
    with whole_bed() as bed:
        yield bed


def container(bed: Bed, name: str, weight: int, groups: tuple[str, ...] = ()) -> Cgroup:
    cgroup = bed.tree.create(name, groups)
    settings = Confinement(cpu_weight=weight)
    bed.tree.groups.put(name, settings)
    assert bed.tree.groups.settle() == {}
    assert cgroup.confine(settings).failed == {}
    return cgroup


def busy(bed: Bed, name: str, weight: int, groups: tuple[str, ...] = ()) -> Path:
    """A container that wants the processor; return the file that counts its use."""
    cgroup = container(bed, name, weight, groups)
    wait_for_line(bed.start(cgroup, BURN), "up")
    return cgroup.path / "cpu.stat"


def shares(stats: dict[str, Path]) -> dict[str, float]:
    """The part of the processor that each has got within some seconds."""
    before = {name: seconds(stat) for name, stat in stats.items()}
    time.sleep(SECONDS)  # no event marks the end of this time
    used = {name: seconds(stat) - before[name] for name, stat in stats.items()}
    return {name: each / sum(used.values()) for name, each in used.items()}


def assert_shares(stats: dict[str, Path], wanted: dict[str, float]) -> None:
    for _ in range(WINDOWS):  # a process that runs while the machine's host stops is charged for that time
        got = shares(stats)
        print(got)
        if got == pytest.approx(wanted, abs=0.03):
            return
    assert got == pytest.approx(wanted, abs=0.03)


def test_a_job_with_an_idle_container_has_as_much_as_one_with_a_single_container(bed: Bed) -> None:
    container(bed, "idle", 88, ("j-1.job",))
    stats = {"job": busy(bed, "works", 88, ("j-1.job",)), "other": busy(bed, "other", 176)}
    assert_shares(stats, {"job": 0.5, "other": 0.5})


def test_containers_of_a_job_that_all_compute_have_their_own_weights(bed: Bed) -> None:
    stats = {
        "one": busy(bed, "one", 120, ("j-1.job",)),
        "two": busy(bed, "two", 40, ("j-1.job",)),
        "flat": busy(bed, "flat", 80),
    }
    assert_shares(stats, {"one": 0.5, "two": 1 / 6, "flat": 1 / 3})


def test_a_promise_in_a_group_is_kept_beside_ten_others(bed: Bed) -> None:
    """Half a processor is promised: 50 beside 45 of all others, one of which is in the same group."""
    stats = {"promised": busy(bed, "promised", 50, ("j-1.job",)), "ours": busy(bed, "ours", 3, ("j-1.job",))}
    stats |= {f"c-{number}": busy(bed, f"c-{number}", 33 if number == 0 else 1) for number in range(10)}
    for _ in range(WINDOWS):
        got = shares(stats)
        print(got)
        if got["promised"] >= 0.98 * 0.5:
            return
    pytest.fail(str(got))


def test_a_group_costs_about_as_much_as_the_cgroup_of_a_container(bed: Bed) -> None:
    """It is made, gets its weight and is removed with its container."""

    def median_s(groups: tuple[str, ...]) -> float:
        took_s = []
        for _ in range(200):
            began = time.perf_counter()
            container(bed, "a", 88, groups)
            assert bed.tree.get("a").remove()
            took_s.append(time.perf_counter() - began)
        return median(took_s)

    flat_s = median_s(())
    group_s = median_s(("j-1.job",)) - flat_s
    print(f"the cgroup of a container {1e6 * flat_s:.0f} us, a group more {1e6 * group_s:.0f} us")
    assert group_s < 1.5 * flat_s
