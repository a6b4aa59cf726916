"""The reasons to refuse a host: a line for each, with its remedy, all of them at once."""

from __future__ import annotations

import dataclasses
import pwd
import sys
from pathlib import Path

import pytest

from bench.mix import door, slurm
from bench.mix.jobs import USERS
from bench.mix.layer import WHEELS
from bench.mix.ways import WAYS
from tests.fakes.measured_host import WHOLE

DIRECTORY = Path("/var/cache/mix")


def without(*programs: str, **more: object) -> door.Found:
    return dataclasses.replace(WHOLE, programs=WHOLE.programs - set(programs), **more)  # type: ignore[arg-type]


def test_a_host_that_has_everything_is_measured_in_all_ways() -> None:
    assert door.refusals(WHOLE, WAYS, DIRECTORY) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (without(is_root=False), "run it with sudo"),
        (without(controllers=None), "no cgroup v2 in /sys/fs/cgroup: boot with systemd.unified_cgroup_hierarchy=1"),
        (without(controllers=frozenset({"cpu", "io"})), "cgroup v2 has no cpuset, memory: boot with"),
        (without(has_systemd=False), "systemd does not run here"),
        (without("cc"), "there is no cc: apt-get install gcc"),
        (without("ip", "tc"), "there is no ip, tc: apt-get install iproute2"),
        (without(has_header=False), "there is no /usr/include/stdio.h: apt-get install libc6-dev"),
        (without("apt-get"), "unpack that (lua.org/ftp) as `source` of --host DIR"),
        (without("tpchgen-cli"), "-m pip install 'tpchgen-cli>=3'"),
        (without(modules=WHOLE.modules - {"duckdb"}), f"{sys.executable} -m pip install '{WHEELS[0]}'"),
        (without(processors=1), "1 processor, 2 are needed"),
        (without(memory_bytes=2 << 30), "2.0 GiB of memory, 4 are needed"),
        (without(free_bytes=1 << 30), "/var/cache/mix has 1.0 GiB free, 5 are needed: name another directory"),
        (without(closed=(Path("/root"),)), "other users cannot enter /root, and jobs run as others: chmod o+rx /root"),
        (without(left=("the user x", "the slice x.slice")), f"-m bench.mix.host {DIRECTORY}"),
        (without(others=("the user x with its home in /home/x",)), "/home/x is there already, not by a run in /var"),
        (without(penstock="an agent answers: stop it first"), "an agent answers: stop it first"),
        (without("srun"), "Slurm has no srun here: apt-get install slurm-client"),
        (without(own_slurm=("/etc/slurm/slurm.conf",)), "(/etc/slurm/slurm.conf), which stays as it is"),
    ],
)
def test_each_thing_that_is_missing_is_one_line_with_its_remedy(found: door.Found, said: str) -> None:
    [line] = door.refusals(found, WAYS, DIRECTORY)
    assert said in line and "\n" not in line


def test_all_that_is_missing_is_reported_at_once() -> None:
    found = without("cc", "make", is_root=False, processors=1, controllers=None)
    assert len(door.refusals(found, WAYS, DIRECTORY)) == 5


def test_slurm_is_missing_for_its_own_ways_only() -> None:
    found = without(*slurm.PROGRAMS, own_slurm=("/etc/slurm/slurm.conf",))
    assert door.refusals(found, ["plain", "penstock"], DIRECTORY) == []
    assert len(door.refusals(found, ["plain", "slurm-shared"], DIRECTORY)) == 5


def test_inputs_that_are_there_need_nothing_that_makes_them() -> None:
    found = without("apt-get", "tpchgen-cli", has_tables=True, has_source=True)
    assert door.refusals(found, WAYS, DIRECTORY) == []


def test_directories_that_other_users_cannot_enter_are_found(tmp_path: Path) -> None:
    checkout = tmp_path / "home" / "checkout"
    checkout.mkdir(parents=True)
    for each in (checkout, checkout.parent):
        each.chmod(0o755)
    outside = set(door.closed([tmp_path]))
    assert set(door.closed([checkout])) - outside == set()
    checkout.parent.chmod(0o700)
    assert set(door.closed([checkout])) - outside == {checkout.parent}
    checkout.parent.chmod(0o711)  # it is entered, not read
    checkout.chmod(0o711)
    assert set(door.closed([checkout])) - outside == {checkout}


def test_a_configuration_of_slurm_is_the_host_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = (tmp_path / "slurm.conf", tmp_path / "cgroup.conf")
    monkeypatch.setattr(slurm, "_FILES", files)
    monkeypatch.setattr(slurm, "is_active", lambda unit: False)
    assert slurm.own_of_host() == []
    files[0].write_text("ClusterName=penstockmix\n")
    assert slurm.own_of_host() == [str(files[0])] and not slurm.is_left()
    files[0].write_text(slurm._CONF)
    files[1].write_text(slurm._CGROUP)
    assert slurm.own_of_host() == [] and slurm.is_left()
    files[1].write_text("ConstrainCores=yes\n")
    assert slurm.own_of_host() == [str(files[1])]


def test_a_user_with_a_home_in_a_directory_of_rounds_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = (tmp_path / f"{door.ROUNDS}1" / "home" / USERS[0], Path("/home") / USERS[1], tmp_path / "home" / USERS[2])
    entries = [
        pwd.struct_passwd((user, "x", number, number, "", str(home), "/bin/sh"))
        for number, (user, home) in enumerate(zip(USERS, homes, strict=True))
    ]
    monkeypatch.setattr(pwd, "getpwall", lambda: entries)
    assert door.users_of(tmp_path) == {USERS[0]: 0}
    assert f"the user {USERS[0]}" in door.left(tmp_path)
    assert list(door.others(tmp_path)) == [
        f"the user {user} with its home in {home}" for user, home in zip(USERS[1:], homes[1:], strict=True)
    ]


def test_the_host_is_examined_without_a_change(tmp_path: Path) -> None:
    found = door.look(tmp_path / "not" / "there")
    assert found.processors >= 1 and found.free_bytes > 0
    assert list(tmp_path.iterdir()) == []
    assert not any(user in name for name in (*found.left, *found.others) for user in USERS)
