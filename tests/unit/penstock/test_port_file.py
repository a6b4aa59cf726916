"""The file of the addresses that a daemon chose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.daemon import StartError, write_port_file

CHOSEN = {"http": "127.0.0.1:4321"}


def test_it_is_replaced_whole_and_never_through_a_link(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "ports.json", tmp_path / "elsewhere"
    path.with_name("ports.json.new").symlink_to(elsewhere)
    write_port_file(path, CHOSEN)
    assert json.loads(path.read_bytes()) == CHOSEN
    assert [*tmp_path.iterdir()] == [path]


def test_one_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    path.mkdir()
    with pytest.raises(StartError, match=f"^--port-file: {path}: Is a directory$"):
        write_port_file(path, CHOSEN)
    assert [*tmp_path.iterdir()] == [path]
