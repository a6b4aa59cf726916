"""The daemon's file is written whole or not at all, with its owner and mode."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.config.file import NotWritten, write


def test_a_written_file_keeps_its_mode_and_the_link_that_leads_to_it(tmp_path: Path) -> None:
    file, link = tmp_path / "agent.toml", tmp_path / "link.toml"
    file.write_text("# of this host\nnode = 'a'\n")
    file.chmod(0o640)
    link.symlink_to(file)
    write(link, {"node": "b"})
    assert link.is_symlink() and file.read_text() == '# of this host\nnode = "b"\n'
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_file_whose_owner_cannot_be_kept_stays_as_it_was_and_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    file = tmp_path / "agent.toml"
    file.write_text("node = 'a'\n")
    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(NotWritten, match=f"^{file}: Operation not permitted$"):
        write(file, {"node": "b"})
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("agent.toml", "node = 'a'\n")]
