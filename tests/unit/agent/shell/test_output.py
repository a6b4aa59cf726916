"""Outputs: bounded, readable while they grow, never the same byte twice."""

from __future__ import annotations

import os
from pathlib import Path

from agent.output import CHUNK_BYTES, read_output, remove_outputs, trim_output

BLOCK = 4096


def test_reading_follows_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(b"hello world")
    first = read_output(path, 0)
    assert (first.data, first.offset, first.size) == (b"hello world", 0, 11)
    assert read_output(path, 6).data == b"world"
    assert read_output(path, 11).data == b""
    assert read_output(path, 99).data == b""


def test_no_output_yet_is_empty(tmp_path: Path) -> None:
    answer = read_output(tmp_path / "missing", 0)
    assert (answer.data, answer.size) == (b"", 0)


def test_a_long_output_comes_in_chunks(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    content = bytes(range(256)) * 4096
    path.write_bytes(content)
    got, offset = b"", 0
    while offset < len(content):
        answer = read_output(path, offset)
        assert 0 < len(answer.data) <= CHUNK_BYTES
        got += answer.data
        offset = answer.offset + len(answer.data)
    assert got == content


def test_trimming_keeps_the_newer_half_at_its_offsets(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    content = b"".join(bytes([n]) * BLOCK for n in range(1, 101))
    path.write_bytes(content)
    assert trim_output(str(path), 20 * BLOCK)
    assert path.stat().st_blocks * 512 <= 20 * BLOCK
    answer = read_output(path, 0)
    assert answer.offset == 90 * BLOCK and answer.size == len(content)
    assert answer.data == content[90 * BLOCK :]
    assert read_output(path, 95 * BLOCK).data == content[95 * BLOCK :]
    assert not trim_output(str(path), 20 * BLOCK)
    with path.open("ab") as writer:  # the container goes on writing where it was
        writer.write(b"tail")
    assert read_output(path, 100 * BLOCK).data == b"tail"


def test_outputs_of_dropped_containers_go(tmp_path: Path) -> None:
    for name in ("c-1", "c-2", "backup"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stdout").write_text("x")
    remove_outputs(tmp_path, {"c-2"})
    assert {p.name for p in tmp_path.iterdir()} == {"c-2", "backup"}


def test_a_file_that_its_container_made_longer_than_it_is_has_nothing_there(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(b"x" * BLOCK)
    os.truncate(path, 1 << 30)
    answer = read_output(path, 1 << 20)
    assert (answer.data, answer.offset, answer.size) == (b"", 1 << 30, 1 << 30)
    assert read_output(path, 2**63 - 1).data == b""
