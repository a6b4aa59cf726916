"""The two trees that the contract is tested on: a fake one, and a real one of our own for a moment."""

from __future__ import annotations

import os
import secrets
import select
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from agent.cgroup_root import cgroup2_mount
from agent.cgroups import Cgroup, CgroupTree, Disk, whole_disks
from agent.cgroups.filesystem import KERNEL, Filesystem
from agent.cgroups.limits import Surroundings
from tests.contract.events_watch import EventsWatch
from tests.fakes.fake_cgroups import FakeCgroups


class Bed:
    """A prepared tree, and processes that live in it. ``kernel`` is the version that the tree behaves like."""

    def __init__(self, root: Path, filesystem: Filesystem, disks: list[Disk], kernel: tuple[int, int] = (6, 1)) -> None:
        self.kernel = kernel
        self.filesystem = filesystem
        self.disks = disks
        self.tree = CgroupTree(root, disks, filesystem)
        self.missing = self.tree.prepare()
        self.processes: list[subprocess.Popen[str]] = []

    def enter(self, cgroup: Cgroup) -> subprocess.Popen[str]:
        """A process that repeats its input."""
        process = self._begin(cgroup, "cat")
        assert echo(process, "up") == "up"
        return process

    def start(self, cgroup: Cgroup, code: str, *arguments: str) -> subprocess.Popen[str]:
        """Start Python code; its child processes end with the bed."""
        return self._begin(cgroup, "/usr/bin/python3", "-ISc", code, *arguments)

    def _begin(self, cgroup: Cgroup, *argv: str) -> subprocess.Popen[str]:
        """Start a command that is in the cgroup from its first instruction."""
        door = cgroup.open_procs()
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                preexec_fn=lambda: os.write(door, b"0"),
            )  # fmt: skip
        finally:
            os.close(door)
        self.processes.append(process)
        return process

    def below(self, cgroup: Cgroup, name: str) -> Cgroup:
        """Make one below a container's own, as the container may."""
        self.filesystem.mkdir(bytes(cgroup.path / name))
        return Cgroup(cgroup.path / name, self.tree.controllers, Surroundings({}, ()), self.filesystem)

    def read(self, cgroup: Cgroup, name: str) -> str:
        """Return a file's present text, past everything that is tested."""
        return self.filesystem.read(os.fsencode(cgroup.path / name)).strip()

    def write(self, cgroup: Cgroup, name: str, text: str) -> None:
        """Likewise."""
        self.filesystem.write(os.fsencode(cgroup.path / name), text)

    def close(self) -> None:
        """End all processes and remove the tree."""
        for container in self.tree.existing():
            self.tree.get(container).kill()
        for process in self.processes:
            process.kill()
            process.wait(60)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        for container in self.tree.existing():
            cgroup = self.tree.get(container)
            if cgroup.populated():  # by a process that is not waited for here
                wait_for(cgroup, "cgroup.events", populated=0)
            assert cgroup.remove()
        self.tree.dismantle()


def wait_for(cgroup: Cgroup, name: str, **wanted: int) -> dict[str, int]:
    """Wait until an events file has this value; the kernel notifies of each change."""
    with EventsWatch(cgroup.path / name) as watch:
        while True:
            found = watch.changed()
            assert found is not None, f"{cgroup.path} is gone"
            if all(found[key] >= value if value else found[key] == 0 for key, value in wanted.items()):
                return found
            assert select.select([watch], [], [], 60)[0], f"{name} says {found}, and never {wanted}"


def refused(number: int) -> AbstractContextManager[object]:
    """Expect an error of the kernel's, by its number."""
    return pytest.raises(OSError, check=lambda error: error.errno == number)


def echo(process: subprocess.Popen[str], line: str) -> str:
    """Send it a line and read it back."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def fake_bed() -> Bed:
    """In memory."""
    return Bed(Path("/fake/cgroup"), FakeCgroups(), [Disk("vda", 254, 0)])


def real_root() -> Path:
    """Where a tree of our own may be made."""
    mount = cgroup2_mount()
    assert mount is not None
    return mount / f"penstock-contract-{secrets.token_hex(4)}"


def real_bed() -> Bed:
    """Under the host's cgroup2 mount, with the controllers that it has."""
    major, minor = os.uname().release.split(".")[:2]
    return Bed(real_root(), KERNEL, whole_disks(), (int(major), int(minor)))
