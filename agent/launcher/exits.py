"""Exits of containers until an agent has recorded them: in memory, and in files for the next launcher."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import msgpack

from agent.launcher.messages import Exited
from penstock.durable import replace_file


class Exits:
    """The unacknowledged exits; a file that cannot be read or written is only reported."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ended: dict[str, Exited] = {}
        directory.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(directory.iterdir()):
            self._read(path)

    def __iter__(self) -> Iterator[Exited]:
        return iter(list(self._ended.values()))

    def add(self, exited: Exited) -> None:
        """Keep an exit. No fsync: a crash of the host ends the containers, too."""
        self._ended[exited.container] = exited
        try:
            replace_file(self._path(exited.container), msgpack.packb(exited))
        except OSError as error:
            say(f"the end of {exited.container} is kept in memory only: {error.filename}: {error.strerror}")

    def drop(self, container: str) -> None:
        """Drop an exit that an agent has recorded."""
        if self._ended.pop(container, None) is None:
            return
        try:
            self._path(container).unlink(missing_ok=True)
        except OSError as error:
            say(f"{error.filename}: {error.strerror}")

    def _path(self, container: str) -> Path:
        return self._directory / container

    def _read(self, path: Path) -> None:
        try:
            if path.suffix == ".new" and path.is_file():  # a launcher died while writing it
                path.unlink()
                return
            exited = Exited(*msgpack.unpackb(path.read_bytes()))
        except (OSError, TypeError, ValueError) as error:  # msgpack's errors are ValueErrors
            say(f"{path} is not a record of a container's end, and is left unchanged: {error}")
            return
        if exited.container == path.name:
            self._ended[exited.container] = exited


def say(text: str) -> None:
    """Print to standard error. A failure, such as a full disk, must not end the containers."""
    with contextlib.suppress(OSError):
        print(f"penstock-launcher: {text}", file=sys.stderr, flush=True)  # noqa: T201
