"""Read text files in ranges of bytes. A line belongs to the range in which it begins, so ranges may cut anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TextRange:
    """The range of a file that one disk monotask reads."""

    path: str
    offset: int
    length: int


def text_ranges(paths: Iterable[Path], partition_bytes: int) -> list[TextRange]:
    """Cut files into ranges of at most ``partition_bytes``; an empty file is one empty range.

    Raises:
        ValueError: there is no file, or ranges have less than one byte.
        OSError: a file is missing.
    """
    if partition_bytes < 1:
        raise ValueError(f"partition_bytes must be at least 1, not {partition_bytes}")
    sizes = [(path, path.stat().st_size) for path in paths]
    ranges = [
        TextRange(str(path), offset, min(partition_bytes, size - offset))
        for path, size in sizes
        for offset in range(0, max(size, 1), partition_bytes)
    ]
    if not ranges:
        raise ValueError("there is no file to read")
    return ranges


def read_range(what: TextRange) -> bytes:
    """Read the lines that begin in the range: the whole access of a disk monotask.

    Raises:
        OSError: the file cannot be read on this host.
    """
    end = what.offset + what.length
    with Path(what.path).open("rb") as file:
        if what.offset:
            file.seek(what.offset - 1)
            file.readline()  # skip the end of the line that began in an earlier range
        start = file.tell()
        if start >= end:
            return b""
        data = file.read(end - start)
        return data if data.endswith(b"\n") else data + file.readline()


def lines(data: bytes) -> list[str]:
    """Return the lines of UTF-8 text, without their ends (LF or CR LF).

    Raises:
        UnicodeDecodeError: the data is no UTF-8.
    """
    found = data.decode("utf-8").split("\n")
    if not found[-1]:
        found.pop()
    return [line.removesuffix("\r") for line in found]
