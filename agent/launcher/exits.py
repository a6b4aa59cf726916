"""How containers ended, until an agent has recorded it: in memory, and in files for the next launcher."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import msgpack

from agent.launcher.messages import Exited
from penstock.durable import replace_file


class Exits:
    """Ends that no agent has acknowledged; a file that cannot be read or written stops nothing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ended: dict[str, Exited] = {}
        directory.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(directory.iterdir()):
            self._read(path)

    def __iter__(self) -> Iterator[Exited]:
        return iter(list(self._ended.values()))

    def add(self, exited: Exited) -> None:
        """Keep one. The disk need not have it before this returns: a crash of the host ends the containers, too."""
        self._ended[exited.container] = exited
        try:
            replace_file(self._path(exited.container), msgpack.packb(astuple(exited)))
        except OSError as error:
            say(f"how {exited.container} ended is kept in memory alone: {error.filename}: {error.strerror}")

    def drop(self, container: str) -> None:
        """An agent has recorded it."""
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
            say(f"{path} is not a record of how a container ended, and left alone: {error}")
            return
        if exited.container == path.name:
            self._ended[exited.container] = exited


def say(text: str) -> None:
    """Tell on standard error. Its file may lie on a full disk: that ends nobody's containers."""
    with contextlib.suppress(OSError):
        print(f"penstock-launcher: {text}", file=sys.stderr, flush=True)  # noqa: T201
