"""The launcher's cache of users, and when its entries expire."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path

import pytest

from agent.launcher import account
from agent.launcher.account import Accounts, look_up

ME = pwd.getpwuid(os.geteuid())


@pytest.fixture
def local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replaces /etc/passwd and /etc/group."""
    path = tmp_path / "passwd"
    path.write_text("before")
    monkeypatch.setattr(account, "_FILES", (str(path), str(tmp_path / "group")))
    return path


def test_it_equals_the_host_s_answer() -> None:
    found = look_up(ME.pw_name)
    assert (found.uid, found.gid, found.home) == (ME.pw_uid, ME.pw_gid, ME.pw_dir)
    assert sorted(found.groups) == sorted(os.getgrouplist(ME.pw_name, ME.pw_gid))
    with pytest.raises(KeyError):
        look_up("no-such-user")


def test_it_is_remembered_for_a_while(local_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    accounts = Accounts()
    assert accounts.get("me") is None
    me = look_up(ME.pw_name)
    accounts.put("me", me)
    now[0] += 59
    assert accounts.get("me") is me
    now[0] += 2
    assert accounts.get("me") is None


@pytest.mark.parametrize("change", ["written", "replaced", "made", "removed"])
def test_a_change_of_the_local_files_is_seen_at_once(local_file: Path, change: str) -> None:
    accounts = Accounts()
    accounts.put("me", look_up(ME.pw_name))
    assert accounts.get("me") is not None
    match change:
        case "written":
            os.utime(local_file, ns=(0, 0))
        case "replaced":  # as usermod does
            fresh = local_file.with_name("passwd+")
            fresh.write_text("after")
            fresh.replace(local_file)
        case "made":
            local_file.with_name("group").write_text("")
        case "removed":
            local_file.unlink()
    assert accounts.get("me") is None
    accounts.put("me", look_up(ME.pw_name))
    assert accounts.get("me") is not None
