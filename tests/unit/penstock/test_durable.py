"""Files that are replaced whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.durable import replace_file


def test_a_file_is_replaced_whole_and_has_its_mode_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"first")
    replace_file(path, b"second", 0o640)
    assert path.read_bytes() == b"second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("link", [False, True])
def test_what_a_process_left_that_ended_meanwhile_is_replaced_and_a_link_not_followed(
    tmp_path: Path, link: bool
) -> None:
    path, left, elsewhere = tmp_path / "file", tmp_path / "file.new", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"its own")
    if link:
        left.symlink_to(elsewhere)
    else:
        left.write_bytes(b"a half of something longer")
    replace_file(path, b"whole")
    assert (path.read_bytes(), elsewhere.read_bytes()) == (b"whole", b"its own")
    assert not path.is_symlink() and not os.path.lexists(left)


def test_data_that_the_disk_takes_in_parts_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr("penstock.durable.os.write", lambda descriptor, data: write(descriptor, data[:3]))
    replace_file(tmp_path / "file", b"ten bytes.")
    assert (tmp_path / "file").read_bytes() == b"ten bytes."


def test_a_file_that_is_created_takes_four_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher writes one for each end of a container."""
    calls: list[str] = []

    def noted(name: str, call: object) -> object:
        def carry_out(*args: object) -> object:
            calls.append(name)
            return call(*args)  # type: ignore[operator]

        return carry_out

    for name in ("open", "write", "close", "unlink", "replace", "fstat", "fdopen"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    replace_file(tmp_path / "file", b"data")
    monkeypatch.undo()
    assert calls == ["open", "write", "close", "replace"]
