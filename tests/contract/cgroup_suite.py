"""The behaviour of any cgroup2 tree, the kernel's and the fake one: each test class below is subclassed with a
``bed``.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess

import pytest

from agent.cgroups import Cgroup, CgroupSample, CgroupTree
from tests.contract.cgroup_beds import Bed, echo, refused, wait_for


def frozen(bed: Bed, cgroup: Cgroup) -> bool:
    """Whether every process in it has stopped."""
    return "frozen 1" in bed.read(cgroup, "cgroup.events")


def wait_until_frozen(bed: Bed, cgroup: Cgroup) -> None:
    """The kernel freezes within milliseconds, and notifies when it has."""
    if not frozen(bed, cgroup):
        wait_for(cgroup, "cgroup.events", frozen=1)


def answers(process: subprocess.Popen[str], within_s: float = 10.0) -> bool:
    """Return whether the process answers in time; its earlier answers come first."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("ping\n")
    process.stdin.flush()
    if not select.select([process.stdout], [], [], within_s)[0]:
        return False
    return process.stdout.readline() == "ping\n"


class ProcessesContract:
    """The behaviour that needs no controller: processes, freezing, killing, making and removing."""

    def test_a_new_cgroup_is_empty(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a-1")
        assert bed.tree.existing() == ["a-1"]
        assert (cgroup.pids(), cgroup.populated(), frozen(bed, cgroup)) == ([], False, False)
        sample = cgroup.sample()
        assert sample is not None
        assert (sample.pids, sample.memory_current_bytes, sample.oom_kills) == (0, 0, 0)

    def test_a_process_enters_through_the_descriptor(self, bed: Bed) -> None:
        cgroup, other = bed.tree.create("a"), bed.tree.create("b")
        process = bed.enter(cgroup)
        assert cgroup.pids() == [process.pid]
        assert cgroup.populated() and not other.populated()
        sample = cgroup.sample()
        assert sample is not None and sample.pids == 1

    def test_a_cgroup_with_a_process_cannot_be_removed(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        process = bed.enter(cgroup)
        assert not cgroup.remove()
        process.kill()
        process.wait(30)
        assert not cgroup.populated()
        assert cgroup.remove()
        assert bed.tree.existing() == []

    def test_killing_ends_every_process(self, bed: Bed) -> None:
        cgroup, other = bed.tree.create("a"), bed.tree.create("b")
        processes = [bed.enter(cgroup) for _ in range(3)]
        spared = bed.enter(other)
        cgroup.kill()
        assert [process.wait(30) for process in processes] == [-signal.SIGKILL] * 3
        assert echo(spared, "still here") == "still here"
        assert cgroup.pids() == []

    def test_freezing_stops_and_thawing_resumes(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        process = bed.enter(cgroup)
        cgroup.freeze(True)
        wait_until_frozen(bed, cgroup)
        assert not answers(process, within_s=0.2)
        cgroup.freeze(False)
        assert answers(process)
        assert not frozen(bed, cgroup)

    def test_killing_works_on_a_frozen_cgroup(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        process = bed.enter(cgroup)
        cgroup.freeze(True)
        wait_until_frozen(bed, cgroup)
        cgroup.kill()
        assert process.wait(30) == -signal.SIGKILL

    def test_a_frozen_one_inside_a_frozen_one_thaws_when_both_do(self, bed: Bed) -> None:
        outer = bed.tree.create("a")
        inner = bed.below(outer, "inner")
        process = bed.enter(inner)
        outer.freeze(True)
        wait_until_frozen(bed, outer)
        assert frozen(bed, inner) and bed.read(inner, "cgroup.freeze") == "0"  # its own wish is another matter
        inner.freeze(True)
        outer.freeze(False)
        assert frozen(bed, inner) and not answers(process, within_s=0.1)
        inner.freeze(False)
        assert answers(process)

    def test_thawing_inside_a_frozen_cgroup_thaws_nothing(self, bed: Bed) -> None:
        outer = bed.tree.create("a")
        inner = bed.below(outer, "inner")
        process = bed.enter(inner)
        inner.freeze(True)
        outer.freeze(True)
        wait_until_frozen(bed, outer)
        inner.freeze(False)
        assert frozen(bed, inner) and not answers(process, within_s=0.1)
        outer.freeze(False)
        assert answers(process)

    def test_a_process_that_enters_a_frozen_cgroup_freezes(self, bed: Bed) -> None:
        cgroup, other = bed.tree.create("a"), bed.tree.create("b")
        process = bed.enter(other)
        cgroup.freeze(True)
        bed.write(cgroup, "cgroup.procs", str(process.pid))
        wait_until_frozen(bed, cgroup)
        assert cgroup.pids() == [process.pid] and other.pids() == []
        assert not answers(process, within_s=0.1)
        cgroup.freeze(False)
        assert answers(process)

    def test_an_empty_one_freezes_too(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        cgroup.freeze(True)
        wait_until_frozen(bed, cgroup)
        assert cgroup.remove()

    def test_a_zombie_does_not_prevent_removal(self, bed: Bed) -> None:
        """Reaped or not: it is in no cgroup.procs, and by cgroup.events the cgroup is empty."""
        cgroup = bed.tree.create("a")
        process = bed.enter(cgroup)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped
        assert (cgroup.pids(), cgroup.populated()) == ([], False)
        assert cgroup.remove()
        assert process.wait(30) == -signal.SIGKILL

    def test_killing_reaches_cgroups_below_and_not_those_beside(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        beside = bed.enter(bed.tree.create("b"))
        inside = [bed.enter(bed.below(cgroup, name)) for name in ("x", "x/y")] + [bed.enter(cgroup)]
        cgroup.kill()
        assert [process.wait(30) for process in inside] == [-signal.SIGKILL] * 3
        assert answers(beside)

    def test_a_signal_reaches_cgroups_below_and_not_those_beside(self, bed: Bed) -> None:
        cgroup, beside = bed.tree.create("a"), bed.tree.create("b")
        processes = [bed.enter(cgroup), bed.enter(bed.below(cgroup, "below"))]
        other = bed.enter(beside)
        cgroup.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in processes] == [-signal.SIGTERM] * 2
        assert echo(other, "lives") == "lives"
        bed.tree.get("gone").send_signal(signal.SIGTERM)

    def test_a_process_is_in_one_cgroup_at_a_time(self, bed: Bed) -> None:
        cgroup, other = bed.tree.create("a"), bed.tree.create("b")
        process = bed.enter(cgroup)
        bed.write(other, "cgroup.procs", str(process.pid))
        assert (cgroup.pids(), other.pids()) == ([], [process.pid])
        assert cgroup.remove() and not other.remove()

    def test_a_reader_of_its_counters_does_not_keep_it(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert cgroup.sample() is not None
        bed.filesystem.rmdir(bytes(cgroup.path))
        assert cgroup.sample() is None

    def test_a_name_that_is_used_again_starts_from_nothing(self, bed: Bed) -> None:
        first = bed.tree.create("a")
        process = bed.enter(first)
        assert first.sample() is not None
        process.kill()
        process.wait(30)
        bed.filesystem.rmdir(bytes(first.path))  # past us: its counters are still open
        bed.filesystem.mkdir(bytes(first.path))
        assert first.sample() == CgroupSample()
        assert bed.tree.get("a").sample() == CgroupSample()

    def test_a_cgroup_that_vanished_is_an_ordinary_result(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert cgroup.remove()
        assert cgroup.sample() is None
        assert (cgroup.pids(), cgroup.populated()) == ([], False)
        cgroup.freeze(True)
        cgroup.kill()
        assert cgroup.remove()
        assert not cgroup.has("cgroup.procs")
        with pytest.raises(FileNotFoundError):
            cgroup.open_procs()

    def test_cgroups_that_a_container_made_below_go_with_it(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        for name in ("x", "x/y", "z"):
            bed.below(cgroup, name)
        process = bed.enter(cgroup)
        assert not cgroup.remove()  # empty cgroups below may be gone already
        process.kill()
        process.wait(30)
        assert cgroup.remove()
        assert bed.tree.existing() == []

    def test_a_container_is_made_once(self, bed: Bed) -> None:
        bed.tree.create("a")
        with pytest.raises(FileExistsError):
            bed.tree.create("a")

    @pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a\n", "/", "ä"])
    def test_an_invalid_container_id_is_never_a_path(self, bed: Bed, name: str) -> None:
        with pytest.raises(AssertionError):
            bed.tree.get(name)

    @pytest.mark.parametrize(
        ("name", "text", "number"),
        [
            ("cgroup.freeze", "2", errno.ERANGE),
            ("cgroup.freeze", "x", errno.EINVAL),
            ("cgroup.kill", "2", errno.ERANGE),
            ("cgroup.subtree_control", "+nonsense", errno.EINVAL),
            ("cgroup.procs", "x", errno.EINVAL),
            ("cgroup.procs", "99999999", errno.ESRCH),
            ("cgroup.nonsense", "1", errno.ENOENT),
        ],
    )
    def test_nonsense_is_refused(self, bed: Bed, name: str, text: str, number: int) -> None:
        cgroup = bed.tree.create("a")
        with refused(number):
            bed.write(cgroup, name, text)

    def test_cgroup_kill_can_only_be_written(self, bed: Bed) -> None:
        with refused(errno.EINVAL):
            bed.read(bed.tree.create("a"), "cgroup.kill")

    def test_preparing_again_changes_nothing(self, bed: Bed) -> None:
        bed.tree.create("a")
        again = CgroupTree(bed.tree.root, bed.disks, bed.filesystem)
        assert again.prepare() == bed.missing
        assert again.controllers == bed.tree.controllers
        assert again.existing() == ["a"]
