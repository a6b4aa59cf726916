"""Containers in groups, on any cgroup2 tree with every controller."""

from __future__ import annotations

import errno

import pytest

from agent.cgroups import Cgroup, CgroupTree
from agent.core.confinement import Confinement
from tests.contract.cgroup_beds import Bed, refused

MIB = 1 << 20
ONE = Confinement(cpu_weight=30, memory_low_bytes=MIB, disk_weight=62)
TWO = Confinement(cpu_weight=12, memory_low_bytes=2 * MIB, disk_weight=10)


def group(bed: Bed, name: str = "j-1.job") -> str:
    """Its directory."""
    return f"{bed.tree.root}/containers/{name}"


def said(bed: Bed, name: str, of: str = "j-1.job") -> str:
    """What a file of a group says."""
    return bed.filesystem.read(f"{group(bed, of)}/{name}".encode()).strip()


def confined(bed: Bed, container: str, confinement: Confinement) -> Cgroup:
    """A new container in the group, with these settings."""
    cgroup = bed.tree.create(container, ["j-1.job"])
    bed.tree.groups.put(container, confinement)
    assert bed.tree.groups.settle() == {}
    cgroup.confine(confinement, Confinement())
    return cgroup


class GroupsContract:
    """A group comes with its first container and goes with its last; its settings follow its containers'."""

    def test_a_group_has_the_weight_and_the_protection_of_its_containers(self, bed: Bed) -> None:
        one, two = confined(bed, "a", ONE), confined(bed, "b", TWO)
        assert (said(bed, "cpu.weight"), said(bed, "memory.low")) == ("42", str(3 * MIB))
        assert said(bed, "io.weight") == "default 62"
        assert [bed.read(each, "cpu.weight") for each in (one, two)] == ["30", "12"]
        bed.tree.groups.put("a", Confinement(cpu_weight=10_000))
        assert bed.tree.groups.settle() == {}
        assert (said(bed, "cpu.weight"), said(bed, "memory.low")) == ("10000", str(2 * MIB)), "the most of the kernel"

    def test_only_what_changes_is_written(self, bed: Bed) -> None:
        confined(bed, "a", ONE)
        bed.filesystem.write(f"{group(bed)}/cpu.weight".encode(), "77")
        bed.tree.groups.put("a", ONE)
        assert bed.tree.groups.settle() == {}
        assert said(bed, "cpu.weight") == "77"
        assert bed.tree.repair() == ["cpu.weight of j-1.job"]
        assert said(bed, "cpu.weight") == "30" and bed.tree.repair() == []

    def test_a_change_that_is_due_is_no_repair(self, bed: Bed) -> None:
        confined(bed, "a", ONE)
        assert confined(bed, "b", TWO).remove()
        assert bed.tree.repair() == []
        assert said(bed, "cpu.weight") == "30"

    def test_one_that_was_left_to_another_program_starts_anew(self, bed: Bed) -> None:
        cgroup, other = confined(bed, "a", ONE), f"{group(bed)}/other.slice".encode()
        bed.filesystem.mkdir(other)
        assert cgroup.remove()
        assert said(bed, "memory.low") == str(MIB), "it cannot be removed"
        again = confined(bed, "b", Confinement(cpu_weight=12))
        assert (said(bed, "cpu.weight"), said(bed, "memory.low")) == ("12", "0")
        bed.filesystem.rmdir(other)
        assert again.remove() and not bed.filesystem.exists(group(bed).encode())

    def test_it_goes_with_its_last_container(self, bed: Bed) -> None:
        one, two = confined(bed, "a", ONE), confined(bed, "b", TWO)
        process = bed.enter(one)
        assert not one.remove()
        assert two.remove()
        assert bed.tree.groups.settle() == {}
        assert said(bed, "cpu.weight") == "30"
        process.kill()
        process.wait(30)
        assert one.remove()
        assert not bed.filesystem.exists(group(bed).encode())
        assert confined(bed, "c", TWO).remove(), "and comes again"

    def test_all_limits_hold_in_it(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a", ["j-1.job"])
        wanted = Confinement(cpu_cores=0.5, cpus="1", memory_max_bytes=64 * MIB, pids_max=9)
        assert cgroup.confine(wanted).failed == {}
        assert cgroup.confine(Confinement()).failed == {}
        assert bed.read(cgroup, "cpuset.cpus.effective") == "0-1"

    def test_the_next_agent_finds_containers_in_groups_and_beside_them(self, bed: Bed) -> None:
        nested, flat = confined(bed, "a", ONE), bed.tree.create("b")
        bed.filesystem.mkdir(group(bed, "left.job").encode())  # by an agent that died at once
        again = CgroupTree(bed.tree.root, bed.disks, bed.filesystem)
        assert again.prepare() == {}
        assert again.existing() == ["a", "b"]
        assert (again.get("a").path, again.get("b").path) == (nested.path, flat.path)
        assert not bed.filesystem.exists(group(bed, "left.job").encode())
        bed.filesystem.write(f"{group(bed)}/cpu.weight".encode(), "77")
        again.groups.put("a", ONE)
        assert again.groups.settle() == {}
        assert said(bed, "cpu.weight") == "30", "all is compared, as nothing is known of it"
        assert again.get("a").remove()
        assert not bed.filesystem.exists(group(bed).encode())

    def test_an_agent_finds_containers_in_groups_of_a_later_version(self, bed: Bed) -> None:
        nested = bed.tree.create("a", ["Class_1", "q.queue"])
        again = CgroupTree(bed.tree.root, bed.disks, bed.filesystem)
        assert again.prepare() == {}
        assert again.existing() == ["a"] and again.get("a").path == nested.path
        assert again.get("a").remove()
        assert not bed.filesystem.exists(group(bed, "Class_1").encode())

    def test_the_next_agent_enables_the_controllers_that_a_group_lacks(self, bed: Bed) -> None:
        names = ["t-1.tenant", "t-1.tenant/j-1.job"]
        bed.tree.create("a", ["t-1.tenant", "j-1.job"])
        for name in reversed(names):
            bed.filesystem.write(f"{group(bed, name)}/cgroup.subtree_control".encode(), "-io")
        again = CgroupTree(bed.tree.root, bed.disks, bed.filesystem)
        assert again.prepare() == {}
        assert all("io" in said(bed, "cgroup.subtree_control", name).split() for name in names)
        assert again.get("a").remove()

    def test_a_group_in_a_group_has_the_weight_of_all_below(self, bed: Bed) -> None:
        for container, groups in (("a", ["t-1.tenant", "j-1.job"]), ("b", ["t-1.tenant"])):
            bed.tree.create(container, groups)
            bed.tree.groups.put(container, ONE)
        assert bed.tree.groups.settle() == {}
        assert (said(bed, "cpu.weight", "t-1.tenant"), said(bed, "cpu.weight", "t-1.tenant/j-1.job")) == ("60", "30")
        assert CgroupTree(bed.tree.root, bed.disks, bed.filesystem).existing() == ["a", "b"]
        assert all(bed.tree.get(container).remove() for container in ("a", "b"))
        assert not bed.filesystem.exists(group(bed, "t-1.tenant").encode())

    def test_killing_a_group_ends_its_containers_alone(self, bed: Bed) -> None:
        inside, beside = bed.enter(confined(bed, "a", ONE)), bed.enter(bed.tree.create("b"))
        bed.filesystem.write(f"{group(bed)}/cgroup.kill".encode(), "1")
        assert inside.wait(30) == -9
        assert beside.poll() is None

    def test_no_process_enters_a_group_itself(self, bed: Bed) -> None:
        process = bed.enter(confined(bed, "a", ONE))
        with refused(errno.EBUSY):
            bed.filesystem.write(f"{group(bed)}/cgroup.procs".encode(), str(process.pid))

    def test_a_container_is_made_once_in_a_group_too(self, bed: Bed) -> None:
        cgroup = confined(bed, "a", ONE)
        with pytest.raises(FileExistsError):
            bed.tree.create("a", ["j-1.job"])
        assert bed.tree.get("a") is cgroup and said(bed, "cpu.weight") == "30"
