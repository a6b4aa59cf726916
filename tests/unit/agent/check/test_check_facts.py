"""Reports on hosts that are not like this one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import cgroup_root
from agent.cgroups import CgroupTree, Disk, Placement, Reason
from agent.check.facts import Fact, Host, enforcement, host, paths
from agent.check.facts.tree import probe_tree
from agent.network import LinkOut
from tests.fakes.fake_cgroups import CONTROLLERS, FakeCgroups

DISK = Disk("vda", 254, 0)
OF_TREE = {
    "containers", "cpu", "cpuset", "memory", "memory_promise", "reclaim", "peak", "disk", "disk_weight", "pids",
    "freeze", "kill", "opportunistic",
}  # fmt: skip
OF_NETWORK = {"network", "network_promise", "ingress"}
#: All controllers: these tests are not about those that the fake tree lacks.
ALL = set(CONTROLLERS)
Facts = Callable[..., dict[str, Fact]]


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Files of /proc, of a host that has everything."""
    (tmp_path / "memory").write_text("some avg10=0.00\n")
    (tmp_path / "status").write_text("Name:\tx\nCapEff:\t000001ffffffffff\n")
    (tmp_path / "swaps").write_text("Filename\tType\n/dev/vdz partition\n")
    return tmp_path


def a_host(proc: Path, **but: object) -> Host:
    """Return a host that has everything but the parts that the keywords remove."""
    values: dict[str, object] = {
        "pressure": proc, "status": proc / "status", "swaps": proc / "swaps", "euid": lambda: 0, "tick_s": lambda: 1e-9,
        "cgroup2_mount": lambda: Path("/fake"), "own_cgroup": lambda mount: mount / "init.scope",
        "is_delegated": lambda cgroup: False, "disks": lambda: (DISK,), "hardware": lambda: (DISK,),
        "weight_works": lambda disk, top: None,
        "disks_of": lambda path: Placement((DISK,), "ext4 on vda1"), "network_why_not": lambda: None,
        "links": lambda: [LinkOut("eth0", 125_000_000)],
    } | but  # fmt: skip
    return Host(**values)  # type: ignore[arg-type]


@pytest.fixture
def facts(proc: Path) -> Facts:
    """The facts of such a host."""

    def find(*, fake: FakeCgroups | None = None, tree: bool = True, **but: object) -> dict[str, Fact]:
        asked = a_host(proc, **but)
        made = CgroupTree(Path("/fake/cgroup"), tuple(asked.disks()), fake or FakeCgroups())
        made.prepare()
        found = enforcement(made if tree else None, asked)
        assert made.existing() == []  # the probe leaves nothing
        return found

    return find


def no(found: dict[str, Fact]) -> set[str]:
    """Return the impossible limits; each has a reason and a remedy."""
    missing = {name for name, fact in found.items() if not fact.ok}
    assert all(found[name].why and found[name].remedy for name in missing)
    return missing


def test_a_host_that_has_everything(facts: Facts) -> None:
    found = facts()
    assert list(found)[: len(OF_TREE)] == [name for name in found if name in OF_TREE]
    assert set(found) == OF_TREE | OF_NETWORK | {"pressure", "users", "delegation", "swap", "clock"}
    assert all(fact.ok and fact.why and not fact.remedy for fact in found.values()), no(found)
    assert "vda" in found["disk"].why and "buffered writes" in found["disk"].why
    assert "cpu.max.burst" in found["cpu"].why and found["reclaim"].why == "memory.reclaim"


@pytest.mark.parametrize(
    ("controller", "names"),
    [
        ("cpu", {"cpu", "opportunistic"}),
        ("cpuset", {"cpuset"}),
        ("memory", {"memory", "memory_promise", "reclaim", "peak"}),
        ("io", {"disk", "disk_weight"}),
        ("pids", {"pids"}),
    ],
)
def test_a_controller_that_is_not_there(facts: Facts, controller: str, names: set[str]) -> None:
    found = facts(fake=FakeCgroups(controllers=ALL - {controller}))
    assert no(found) == names
    assert ("not charged to a cgroup" in found["disk"].why) == (controller == "memory")


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("cgroup.kill", set()),
        ("cpu.idle", set()),
        ("cpu.max.burst", set()),
        ("memory.reclaim", set()),
        ("memory.peak", {"peak"}),
        ("memory.low", {"memory_promise"}),
        ("cgroup.freeze", {"freeze"}),
    ],
)
def test_an_older_kernel(facts: Facts, file: str, names: set[str]) -> None:
    found = facts(fake=FakeCgroups(without=[file]))
    assert no(found) == names
    assert any(file in fact.why for fact in found.values())


@pytest.mark.parametrize(
    ("but", "missing"),
    [
        ({"disks": lambda: ()}, "disk"),
        ({"hardware": lambda: ()}, "disk_weight"),
        ({"weight_works": lambda disk, top: Reason(f"not on {disk.name}", "bfq")}, "disk_weight"),
        ({"euid": lambda: 1000}, "users"),
        ({"tick_s": lambda: 0.004}, "clock"),
    ],
    ids=["no disk", "no hardware", "weights without effect", "not root", "a coarse clock"],
)
def test_a_host_that_lacks_one_thing(facts: Facts, but: dict[str, Any], missing: str) -> None:
    assert no(facts(**but)) == {missing}


def test_a_disk_that_cannot_be_limited(facts: Facts) -> None:
    found = facts(fake=FakeCgroups(disks=["8:0"]))
    assert not found["disk"].ok and "the disk is gone, or its driver cannot be limited" in found["disk"].why


def test_files_of_proc_that_show_the_lacks_of_a_host(facts: Facts, proc: Path) -> None:
    (proc / "status").write_text("CapEff:\t000000000000ff3f\n")  # root that may not become others
    assert no(facts()) == {"users"}
    (proc / "memory").unlink()
    assert no(facts()) == {"users", "pressure"}


@pytest.mark.parametrize("mount", [None, Path("/sys/fs/cgroup")])
def test_without_a_tree(facts: Facts, mount: Path | None) -> None:
    found = facts(tree=False, cgroup2_mount=lambda: mount)
    assert no(found) == OF_TREE | OF_NETWORK | {"delegation"}


def test_a_network_that_cannot_be_limited(facts: Facts) -> None:
    found = facts(network_why_not=lambda: "no CAP_BPF; remedy: run the agent as root")
    assert no(found) == OF_NETWORK
    assert found["network"] == Fact(False, "no CAP_BPF", "run the agent as root")


@pytest.mark.parametrize(
    ("links", "why"),
    [
        ([], "no link leads out"),
        ([LinkOut("eth0", 0)], "the rate of eth0 is not known"),
        ([LinkOut("eth0", 1), LinkOut("eth1", 0)], "the rate of eth1 is not known"),
        ([LinkOut("eth0", 1), LinkOut("eth1", 1, "eth1 is somebody's; remedy: tc")], "eth1 is somebody's"),
    ],
)
def test_links_on_which_nothing_can_be_promised(facts: Facts, links: list[LinkOut], why: str) -> None:
    found = facts(links=lambda: links)
    assert no(found) == {"network_promise"} and why in found["network_promise"].why


def test_without_swap(facts: Facts, proc: Path) -> None:
    (proc / "swaps").write_text("Filename\tType\n")
    found = facts()
    assert no(found) == set() and found["swap"].why.startswith("no swap")
    (proc / "swaps").unlink()
    assert facts()["swap"] == found["swap"]


def test_pressure_that_is_switched_off(facts: Facts, monkeypatch: pytest.MonkeyPatch, proc: Path) -> None:
    """Built without PSI_DEFAULT the files are there and cannot be read."""
    read = Path.read_text

    def refuse(self: Path, **how: str) -> str:
        if self == proc / "memory":
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return read(self, **how)

    monkeypatch.setattr(Path, "read_text", refuse)
    found = facts()["pressure"]
    assert not found.ok and "psi=1" in found.remedy


class Trigger:
    """In place of the kernel's file: accepts some settings only with CAP_SYS_RESOURCE, or none."""

    def __init__(self, *, compromise: Reason | None = None, error: OSError | None = None) -> None:
        self.compromise, self._error, self.window_us = compromise, error, 2_000_000 if compromise else 500_000

    def __call__(self, path: Path, stall_us: int, window_us: int) -> Trigger:
        assert (path.name, window_us) == ("memory", 500_000)
        if self._error is not None:
            raise self._error
        return self

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def trigger(monkeypatch: pytest.MonkeyPatch) -> Trigger:
    """The files of these tests are no pressure files."""
    made = Trigger()
    monkeypatch.setattr(host, "PressureTrigger", made)
    return made


def test_how_soon_pressure_wakes(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "within 0.5 s" in facts()["pressure"].why
    monkeypatch.setattr(host, "PressureTrigger", Trigger(compromise=Reason("2 s", "CAP_SYS_RESOURCE")))
    slow = facts()["pressure"]
    assert slow.ok and "within 2 s" in slow.why and slow.remedy == "CAP_SYS_RESOURCE"
    monkeypatch.setattr(host, "PressureTrigger", Trigger(error=OSError(errno.EPERM, "Operation not permitted")))
    assert no(facts()) == {"pressure"}


def delegation(proc: Path, root: str, **but: object) -> Fact:
    """Of a tree at ``root`` below the mount."""
    tree = CgroupTree(Path("/fake") / root, (), FakeCgroups())
    return host.delegation(tree, a_host(proc, **but))


def test_the_tree_and_its_unit(proc: Path) -> None:
    assert "in no unit" in delegation(proc, "penstock-1").why
    unit = "penstock.slice/penstock-containers.service"
    assert not delegation(proc, unit).ok
    delegated = delegation(proc, unit, is_delegated=lambda cgroup: cgroup == Path("/fake") / unit)
    assert delegated == Fact(True, "penstock-containers.service, delegated, apart from the agent")
    below = delegation(proc, f"{unit}/sub", is_delegated=lambda cgroup: cgroup == Path("/fake") / unit)
    assert below == delegated
    own = delegation(proc, unit, is_delegated=lambda cgroup: True, own_cgroup=lambda mount: mount / unit / "daemons")
    assert not own.ok and "restart" in own.why and "penstock-containers.service" in own.remedy
    scope = "user.slice/run-1.scope"
    ours = delegation(proc, scope, is_delegated=lambda cgroup: True, own_cgroup=lambda mount: mount / scope)
    assert ours.ok  # a scope is never restarted


def test_a_promise_that_a_slice_above_undoes(proc: Path, tmp_path: Path) -> None:
    root = tmp_path / "batch.slice/penstock.slice/penstock-containers.service"
    root.mkdir(parents=True)
    tree = CgroupTree(root, (DISK,), FakeCgroups(str(root)))
    tree.prepare()
    low = tmp_path / "batch.slice/memory.low"
    low.write_text("0\n")
    (tmp_path / "batch.slice/penstock.slice/memory.low").write_text("0\n")  # which the agent sets, as it promises
    asked = a_host(proc, cgroup2_mount=lambda: tmp_path, is_delegated=lambda cgroup: True)
    found = enforcement(tree, asked)
    assert no(found) == {"memory_promise"}
    assert found["memory_promise"].remedy.startswith("systemctl set-property batch.slice MemoryLow=")
    low.write_text("1048576\n")
    assert no(enforcement(tree, asked)) == set()


DISK_FACT = {"disk": Fact(True, "io.max on vda")}


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement((DISK,), "ext4 on vda1"), Fact(True, "ext4 on vda1; io.max on vda")),
        (
            Placement((DISK,), "vfat on vda1", Reason("not charged to a cgroup", "use ext4")),
            Fact(True, "vfat on vda1; io.max on vda; not charged to a cgroup", "use ext4"),
        ),
        (Placement((), "tmpfs", Reason("memory, no disk")), Fact(False, "memory, no disk")),
        (Placement((Disk("loop3", 7, 3),), "ext4 on loop3"), Fact(False, "ext4 on loop3; no limit is put on loop3")),
    ],
)
def test_where_a_path_lies(proc: Path, placement: Placement, expected: Fact) -> None:
    asked = a_host(proc, disks_of=lambda path: placement)
    assert paths([Path("/x")], DISK_FACT, asked) == {"path /x": expected}


def test_a_path_where_no_disk_can_be_limited(proc: Path) -> None:
    why = {"disk": Fact(False, "no io controller", "boot otherwise")}
    found = paths([Path("/x")], why, a_host(proc))["path /x"]
    assert found == Fact(False, "ext4 on vda1; no io controller", "boot otherwise")


def test_a_path_that_is_not_there() -> None:
    found = paths([Path("/no/such/path")], DISK_FACT)["path /no/such/path"]
    assert not found.ok and "No such file" in found.why


def test_a_tree_that_cannot_be_prepared_is_not_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = tmp_path / "penstock-check"
    monkeypatch.setattr(cgroup_root, "choose_root", lambda instance: root)
    with probe_tree() as found:  # a plain directory has no files of a cgroup
        assert found is None
    assert not root.exists()
