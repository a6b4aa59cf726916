"""The caller, as the kernel has it: pairs of sockets, and groups that a test as root can put on."""

from __future__ import annotations

import functools
import grp
import os
import pwd
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import peer_credentials
from agent.peer_credentials import ancestry, container_of, credentials_of, is_still, known_group, user_of

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can put on groups")


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    one, other = socket.socketpair()
    with one, other:
        yield one


def _as(user: str, groups: list[int]) -> socket.socket:
    """Return the near end of a connection whose far end another user made."""
    before, entry = os.getgroups(), pwd.getpwnam(user)
    os.setgroups(groups)
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    try:
        near, far = socket.socketpair()
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)
    far.close()
    return near


def test_we_ourselves_are_an_operator(connection: socket.socket) -> None:
    entry = pwd.getpwuid(os.geteuid())
    assert credentials_of(connection) == (entry.pw_uid, entry.pw_name, True, os.getpid())


@needs_root
def test_an_operator_is_who_is_in_the_group_as_the_kernel_has_it() -> None:
    staff = grp.getgrnam("staff").gr_gid
    for groups, asked, operator in (
        ([], "staff", False),
        ([staff], "staff", True),
        ([staff + 1], "staff", False),
        ([staff], "", False),
        ([staff], "no-such-group", False),
        ([*range(100_000, 101_000), staff], "staff", True),  # more than fit at once
        ([], "bin", True),  # the group that it has by itself
    ):
        with _as("bin", groups) as connection:
            assert credentials_of(connection, asked)[:3] == (pwd.getpwnam("bin").pw_uid, "bin", operator), (
                len(groups),
                asked,
            )


@needs_root
def test_a_name_that_leads_elsewhere_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two directories know a user of one name: the one with the uid is not the one that the name leads to."""
    uid, real = pwd.getpwnam("bin").pw_uid, pwd.getpwuid
    with _as("bin", []) as connection:
        monkeypatch.setattr(pwd, "getpwuid", lambda asked: real(pwd.getpwnam("daemon").pw_uid))
        assert credentials_of(connection)[:3] == (uid, f"uid:{uid}", False)
        monkeypatch.undo()
        assert credentials_of(connection).user == "bin"


def test_the_agents_own_user_is_looked_up_once_and_others_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []
    real, own = pwd.getpwuid, os.geteuid()
    other = pwd.getpwnam("bin").pw_uid

    def getpwuid(uid: int) -> pwd.struct_passwd:
        looked_up.append(uid)
        if len(looked_up) == 1:
            raise KeyError("the directory does not answer")
        return real(uid)

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    monkeypatch.setattr(peer_credentials, "_own_name", functools.cache(peer_credentials._name))
    assert user_of(own) == f"uid:{own}"
    assert [user_of(uid) for uid in (own, other) * 2] == [real(own).pw_name, "bin"] * 2
    assert looked_up == [own, own, other, other]


def test_a_client_runs_in_the_container_of_its_cgroup_or_else_of_its_session(tmp_path: Path) -> None:
    own = os.getpid()
    (tmp_path / str(own)).mkdir()
    said = tmp_path / str(own) / "cgroup"
    said.write_text("1:cpu:/c-1\n0::/penstock/containers/c-2/inner\n")
    assert container_of(own, {"c-1": 5, "c-2": 6}, proc=tmp_path) == "c-2"
    assert container_of(own, {"c-1": 5}, {"c-2": 6}, tmp_path) == "c-2"
    assert container_of(own, {"c-1": 5}, proc=tmp_path) == ""
    assert container_of(own, {"c-1": os.getsid(own)}, proc=tmp_path) == "c-1"
    said.unlink()
    assert container_of(own, {"c-1": os.getsid(own)}, proc=tmp_path) == "c-1"
    assert container_of(2**22 + 1, {"c-1": 1}, proc=tmp_path) == ""  # no such process: pids end at 2**22


def test_a_descendant_of_an_adopted_process_is_in_the_nearest_such_container() -> None:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        assert container_of(child.pid, {}, {"c-1": os.getpid()}) == "c-1"
        assert container_of(child.pid, {}, {"c-1": os.getpid(), "c-2": child.pid}) == "c-2"
        assert container_of(os.getpid(), {}, {"c-2": child.pid}) == ""
        assert list(ancestry(child.pid))[:3] == [child.pid, os.getpid(), os.getppid()]
    finally:
        child.kill()
        child.wait()
    assert list(ancestry(child.pid)) == [child.pid]


def test_a_pid_is_still_the_process_that_had_it_then() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME) - 1.0
    child = subprocess.Popen(["sleep", "1000"])
    now = time.clock_gettime(time.CLOCK_BOOTTIME) + 0.02  # the kernel counts in ticks
    try:
        assert is_still(child.pid, now)
        assert not is_still(child.pid, before), "it began later: another had that pid"
    finally:
        child.kill()
        child.wait()
    assert not is_still(child.pid, now)
    assert not is_still(0, now)


def test_a_group_is_known_or_not() -> None:
    assert known_group(grp.getgrall()[0].gr_name)
    assert not known_group("no-such-group")
