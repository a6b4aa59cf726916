"""Containers' output without passed descriptors: one bounded append-only file per stream.

The kernel writes to the file, not the agent, so output continues while the agent is away. The older half of a file over
its limit is punched out (the offsets of the rest do not change), so a reader that follows never reads a byte twice.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Container
from pathlib import Path

from penstock.wire.agent_api import Output

#: The maximum size of one answer.
CHUNK_BYTES = 256 * 1024
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # linux/falloc.h
_BLOCK = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def open_output(directory: Path, opened: contextlib.ExitStack) -> tuple[int, int, int]:
    """Open a container's standard streams: nothing to read, and the files of its output, which ``opened`` closes.

    Raises:
        OSError: a file cannot be opened.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    appended = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    streams = (Path(os.devnull), os.O_RDONLY), (directory / "stdout", appended), (directory / "stderr", appended)
    descriptors = []
    for path, flags in streams:
        descriptors.append(os.open(path, flags | os.O_CLOEXEC, 0o600))
        opened.callback(os.close, descriptors[-1])  # at once: the next may not open
    stdin, stdout, stderr = descriptors
    return stdin, stdout, stderr


def read_output(path: Path, offset: int) -> Output:
    """Read from ``offset``, or from the beginning of the remaining data. Empty if the container wrote nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Output(data=b"", offset=offset, size=0)
    try:
        size = os.fstat(descriptor).st_size
        if offset >= size:
            return Output(data=b"", offset=offset, size=size)
        try:
            start = os.lseek(descriptor, offset, os.SEEK_DATA)  # skips the punched-out part
        except OSError as error:  # the container has extended its own file without writing
            if error.errno != errno.ENXIO:
                raise
            return Output(data=b"", offset=size, size=size)
        return Output(data=os.pread(descriptor, CHUNK_BYTES, start), offset=start, size=size)
    finally:
        os.close(descriptor)


def trim_output(path: str, max_bytes: int) -> bool:
    """Keep the newer half of a file that holds more than ``max_bytes``; return whether anything was dropped."""
    try:
        status = os.stat(path)  # noqa: PTH116 - for each container at each sample, and a Path takes three times as long
        if status.st_blocks * 512 <= max_bytes + _BLOCK:  # often: one call instead of three
            return False
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        status = os.fstat(descriptor)
        end = (status.st_size - max_bytes // 2) // _BLOCK * _BLOCK
        punched = _libc.fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(max(0, end)))
        return bool(punched == 0)
    finally:
        os.close(descriptor)


def remove_outputs(outputs: Path, known: Container[str]) -> None:
    """Remove the outputs of containers that are no longer kept; other directories stay."""
    with os.scandir(outputs) as directories:
        for directory in directories:
            if directory.name not in known and directory.name.startswith("c-"):
                shutil.rmtree(directory, ignore_errors=True)
