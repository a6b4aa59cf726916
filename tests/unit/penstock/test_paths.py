"""The places of sockets and state, for root and for all other users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import paths

_VARIABLES = ("PENSTOCK_RUNTIME_DIR", "PENSTOCK_SOCKET", "PENSTOCK_STATE_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


def become(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)


def test_root_uses_the_system_s_places(monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, 0)
    assert paths.runtime_dir() == Path("/run/penstock")
    assert paths.agent_socket() == Path("/run/penstock/agent.sock")
    assert paths.state_dir() == Path("/var/lib/penstock")


def test_others_use_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    become(monkeypatch, 1234)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.runtime_dir() == Path("/tmp/penstock-1234")
    assert paths.state_dir() == tmp_path / ".local/state/penstock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert paths.runtime_dir() == tmp_path / "penstock"
    assert paths.state_dir() == tmp_path / "state/penstock"


def test_one_s_own_agent_comes_before_the_system_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    become(monkeypatch, 1234)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    own = tmp_path / "penstock" / "agent.sock"
    own.parent.mkdir()
    own.touch()
    assert paths.agent_socket() == own


def test_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", "/a")
    monkeypatch.setenv("PENSTOCK_STATE_DIR", "/b")
    assert (paths.runtime_dir(), paths.state_dir()) == (Path("/a"), Path("/b"))
    monkeypatch.setenv("PENSTOCK_SOCKET", "/c")
    assert paths.agent_socket() == Path("/c")


def test_a_private_directory_is_made_private(tmp_path: Path) -> None:
    made = tmp_path / "a" / "b"
    paths.make_private(made)
    assert made.stat().st_mode & 0o777 == 0o700


def test_another_user_s_directory_is_a_trap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uid = os.geteuid()
    become(monkeypatch, uid + 1)
    with pytest.raises(PermissionError, match="another user"):
        paths.make_private(tmp_path)


def test_a_directory_that_cannot_be_made_is_named_by_its_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "within"):
        with pytest.raises(OSError, match=f"^state_dir: {place}: Not a directory; name another directory$"):
            paths.make_configured("state_dir", place)
    become(monkeypatch, os.geteuid() + 1)
    with pytest.raises(OSError, match=f"^state_dir: {tmp_path} belongs to another user; name another directory$"):
        paths.make_configured("state_dir", tmp_path)
