"""Who calls, as the kernel has it: pairs of sockets, and groups that a test which is root can put on."""

from __future__ import annotations

import grp
import os
import pwd
import socket
from collections.abc import Iterator

import pytest

from agent.caller import caller, known_group

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can put on groups")


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    one, other = socket.socketpair()
    with one, other:
        yield one


def _as(user: str, groups: list[int]) -> socket.socket:
    """The near end of a connection whose far end another user made."""
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
    assert caller(connection) == (entry.pw_uid, entry.pw_name, True)


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
            assert caller(connection, asked) == (pwd.getpwnam("bin").pw_uid, "bin", operator), (len(groups), asked)


@needs_root
def test_a_name_that_leads_elsewhere_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two directories know a user of one name: the one with the uid is not the one that the name leads to."""
    uid, real = pwd.getpwnam("bin").pw_uid, pwd.getpwuid
    with _as("bin", []) as connection:
        monkeypatch.setattr(pwd, "getpwuid", lambda asked: real(pwd.getpwnam("daemon").pw_uid))
        assert caller(connection) == (uid, f"uid:{uid}", False)
        monkeypatch.undo()
        assert caller(connection).user == "bin"


def test_a_group_is_known_or_not() -> None:
    assert known_group(grp.getgrall()[0].gr_name)
    assert not known_group("no-such-group")
