"""What is said of hosts that are not like this one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cgroups import CgroupTree, Disk
from agent.check.facts import Fact, Host, enforcement
from penstock.testing.fake_cgroups import FakeCgroups

DISK = Disk("vda", 254, 0)
NAMES = [
    "containers", "cpu", "memory", "disk", "pids", "freeze", "kill", "opportunistic", "peak", "network", "pressure",
    "users", "clock",
]  # fmt: skip


@pytest.fixture
def pressure(tmp_path: Path) -> Path:
    (tmp_path / "memory").write_text("some avg10=0.00\n")
    return tmp_path


@pytest.fixture
def facts(pressure: Path) -> Callable[..., dict[str, Fact]]:
    """The facts of a host that has everything but what the keywords take from it."""

    def find(
        *, fake: FakeCgroups | None = None, tree: bool = True, disks: tuple[Disk, ...] = (DISK,), **host: object
    ) -> dict[str, Fact]:
        values: dict[str, object] = {
            "pressure": pressure, "cgroup2_mount": lambda: Path("/sys/fs/cgroup"), "disks": lambda: disks,
            "network_why_not": lambda: None, "euid": lambda: 0, "tick_s": lambda: 1e-9, **host,
        }  # fmt: skip
        made = CgroupTree(Path("/fake/cgroup"), disks, fake or FakeCgroups())
        made.prepare()
        found = enforcement(made if tree else None, Host(**values))  # type: ignore[arg-type]
        assert made.existing() == []  # the probe leaves nothing
        return found

    return find


Facts = Callable[..., dict[str, Fact]]


def test_a_host_that_has_everything(facts: Facts) -> None:
    found = facts()
    assert list(found) == NAMES
    assert all(fact.ok and fact.why and not fact.remedy for fact in found.values())
    assert "vda" in found["disk"].why and "buffered writes" in found["disk"].why


def no(found: dict[str, Fact]) -> set[str]:
    """What cannot be; each of these has a reason and a remedy."""
    missing = {name for name, fact in found.items() if not fact.ok}
    assert all(found[name].why and found[name].remedy for name in missing)
    return missing


@pytest.mark.parametrize(
    ("controller", "names"),
    [("cpu", {"cpu", "opportunistic"}), ("memory", {"memory", "peak"}), ("io", {"disk"}), ("pids", {"pids"})],
)
def test_a_controller_that_is_not_there(facts: Facts, controller: str, names: set[str]) -> None:
    others = {"cpu", "io", "memory", "pids"} - {controller}
    assert no(facts(fake=FakeCgroups(controllers=others))) == names


@pytest.mark.parametrize(
    ("file", "names"),
    [("cgroup.kill", set()), ("cpu.idle", set()), ("memory.peak", {"peak"}), ("cgroup.freeze", {"freeze"})],
)
def test_an_older_kernel(facts: Facts, file: str, names: set[str]) -> None:
    found = facts(fake=FakeCgroups(without=[file]))
    assert no(found) == names
    assert any(file in fact.why for fact in found.values())


def test_without_a_disk(facts: Facts) -> None:
    assert no(facts(disks=())) == {"disk"}


def test_a_disk_that_cannot_be_limited(facts: Facts) -> None:
    found = facts(fake=FakeCgroups(disks=["8:0"]))
    assert not found["disk"].ok and "the disk is gone, or its driver cannot be limited" in found["disk"].why


@pytest.mark.parametrize("mount", [None, Path("/sys/fs/cgroup")])
def test_without_a_tree(facts: Facts, mount: Path | None) -> None:
    found = facts(tree=False, cgroup2_mount=lambda: mount)
    assert list(found) == NAMES
    assert no(found) == set(NAMES) - {"pressure", "users", "clock"}


def test_a_network_that_cannot_be_limited(facts: Facts) -> None:
    found = facts(network_why_not=lambda: "no CAP_BPF; remedy: run the agent as root")
    assert no(found) == {"network"}
    assert found["network"] == Fact(False, "no CAP_BPF", "run the agent as root")


def test_who_is_not_root(facts: Facts) -> None:
    assert no(facts(euid=lambda: 1000)) == {"users"}


def test_a_coarse_clock(facts: Facts) -> None:
    assert no(facts(tick_s=lambda: 0.004)) == {"clock"}


def test_without_pressure(facts: Facts, pressure: Path) -> None:
    (pressure / "memory").unlink()
    assert no(facts()) == {"pressure"}


def test_pressure_that_is_switched_off(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built without PSI_DEFAULT the files are there and cannot be read."""

    def refuse(self: Path, **_: object) -> str:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(Path, "read_text", refuse)
    found = facts()["pressure"]
    assert not found.ok and "psi=1" in found.remedy
