"""However a file is cut, each of its lines is read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.dataset.text import lines, read_range, text_ranges

TEXTS = ["", "\n", "one", "one\n", "one\ntwo", "one\n\ntwo\n", "\n\n\n", "ä\r\nöß\r\n\r\nü", "x" * 40 + "\ny\n"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("partition_bytes", [1, 2, 3, 5, 8, 1000])
def test_every_line_once_in_order(tmp_path: Path, text: str, partition_bytes: int) -> None:
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    ranges = text_ranges([path], partition_bytes)
    assert sum(one.length for one in ranges) == len(text.encode())
    assert [one.offset for one in ranges] == list(range(0, max(1, len(text.encode())), partition_bytes))
    expected = text.split("\n")[: None if text and text[-1] != "\n" else -1]
    assert [line for one in ranges for line in lines(read_range(one))] == [line.rstrip("\r") for line in expected]


def test_files_follow_each_other(tmp_path: Path) -> None:
    for name, text in (("a", "1\n2"), ("b", "3\n")):
        (tmp_path / name).write_text(text)
    ranges = text_ranges([tmp_path / "b", tmp_path / "a"], 100)
    assert [lines(read_range(one)) for one in ranges] == [["3"], ["1", "2"]]


def test_only_line_feeds_end_lines() -> None:
    assert lines("a\u2028b\x0cc\rd\n".encode()) == ["a\u2028b\x0cc\rd"]


def test_nothing_to_read_and_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        text_ranges([], 1)
    with pytest.raises(ValueError, match="partition_bytes must be at least 1, not 0"):
        text_ranges([tmp_path], 0)
    with pytest.raises(FileNotFoundError):
        text_ranges([tmp_path / "missing"], 1)
