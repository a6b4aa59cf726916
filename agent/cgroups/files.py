"""The ground of every controller here: how a cgroup v2 file is read, written and typed.

cgroupspy's own controllers know version 1 only; its descriptors and its ``Controller`` know nothing of versions, so the
version 2 controllers are declared on top of them. Two things differ from cgroupspy's own reading and writing: writes go
through ``os.write`` (a buffered file swallows EINVAL unless it is closed explicitly), and each write is read back.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cgroupspy.controllers import Controller
from cgroupspy.interfaces import BaseFileInterface

_READ_BYTES = 64 * 1024


class Gone(FileNotFoundError):  # noqa: N818 - an ordinary result more than an error
    """The cgroup vanished: an ordinary result, for whoever asks to handle."""


class NotSupported(OSError):  # noqa: N818 - it says what is so
    """The file is not there though the cgroup is: the kernel or the delegation lacks it."""


def read_file(path: bytes) -> str:
    """The whole of a kernel file.

    Raises:
        Gone: the cgroup is not there (any more).
        NotSupported: the cgroup is there, the file is not.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _missing(path) from None
    try:
        return os.read(descriptor, _READ_BYTES).decode()
    except OSError as error:
        if error.errno == errno.ENODEV:  # removed between open and read
            raise Gone(error.errno, "the cgroup vanished", os.fsdecode(path)) from None
        raise
    finally:
        os.close(descriptor)


def write_file(path: bytes, text: str) -> None:
    """One write, as the kernel wants it.

    Raises:
        Gone, NotSupported: as :func:`read_file`.
        OSError: what the kernel says to the value (EINVAL, EBUSY, …), with the path.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _missing(path) from None
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        if error.errno == errno.ENODEV:
            raise Gone(error.errno, "the cgroup vanished", os.fsdecode(path)) from None
        raise OSError(error.errno, os.strerror(error.errno or 0), os.fsdecode(path)) from None
    finally:
        os.close(descriptor)


def _missing(path: bytes) -> OSError:
    if Path(os.fsdecode(path)).parent.is_dir():
        return NotSupported(errno.ENOENT, "this kernel or delegation lacks the file", os.fsdecode(path))
    return Gone(errno.ENOENT, "the cgroup vanished", os.fsdecode(path))


class V2Controller(Controller):  # type: ignore[misc] # cgroupspy has no type hints
    """The files of one cgroup version 2 directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(SimpleNamespace(full_path=os.fsencode(path)))

    def get_property(self, filename: bytes) -> str:
        """Called by cgroupspy's descriptors."""
        return read_file(self.filepath(filename)).strip()

    def set_property(self, filename: bytes, value: object) -> None:
        """Called by cgroupspy's descriptors."""
        write_file(self.filepath(filename), str(value))


class Interface(BaseFileInterface):  # type: ignore[misc]
    """cgroupspy's descriptor, with the types that a checker wants."""

    def __get__(self, instance: V2Controller, owner: type[V2Controller]) -> Any:
        return super().__get__(instance, owner)

    def __set__(self, instance: V2Controller, value: Any) -> None:
        super().__set__(instance, value)


class MaxOrInteger(Interface):
    """``max`` ↔ None, else a whole number."""

    def sanitize_get(self, value: str) -> int | None:
        """From the kernel."""
        return None if value == "max" else int(value)

    def sanitize_set(self, value: int | None) -> str:
        """To the kernel."""
        return "max" if value is None else str(int(value))


class Word(Interface):
    """A number as it stands."""

    def sanitize_get(self, value: str) -> int:
        """From the kernel."""
        return int(value)

    def sanitize_set(self, value: int) -> str:
        """To the kernel."""
        return str(int(value))


class Words(Interface):
    """A list of words on a line, or one number a line."""

    def sanitize_get(self, value: str) -> list[str]:
        """From the kernel."""
        return value.split()

    def sanitize_set(self, value: list[str]) -> str:
        """To the kernel."""
        return " ".join(value)


class FlatKeyed(Interface):
    """``key value`` lines (Documentation/admin-guide/cgroup-v2.rst, flat keyed)."""

    readonly = True

    def sanitize_get(self, value: str) -> dict[str, int]:
        """From the kernel."""
        fields = value.split()
        return dict(zip(fields[::2], map(int, fields[1::2]), strict=False))


class NestedKeyed(Interface):
    """``device key=value key=value …`` lines (nested keyed); written one line at a time."""

    def sanitize_get(self, value: str) -> dict[str, dict[str, int | None]]:
        """From the kernel."""
        parsed: dict[str, dict[str, int | None]] = {}
        for line in value.splitlines():
            device, *pairs = line.split()
            fields: dict[str, int | None] = {}
            for pair in pairs:
                key, _, number = pair.partition("=")
                fields[key] = None if number == "max" else int(number)
            parsed[device] = fields
        return parsed

    def sanitize_set(self, value: tuple[str, dict[str, int | None]]) -> str:
        """To the kernel: keys that are not named keep their values."""
        device, fields = value
        return " ".join([device, *(f"{k}={'max' if v is None else v}" for k, v in fields.items())])


def set_and_check(controller: V2Controller, name: str, value: Any, *, granularity: int = 0) -> None:
    """Write unless it stands there already, then read back.

    Args:
        granularity: the kernel may round down by less than this (memory: a page).

    Raises:
        OSError: refused by the kernel, or something else was read back.
    """
    if getattr(controller, name) == value:
        return
    setattr(controller, name, value)
    found = getattr(controller, name)
    close = isinstance(found, int) and isinstance(value, int) and 0 <= value - found < granularity
    if found != value and not close:
        raise OSError(errno.EIO, f"wrote {value!r}, read back {found!r}", name)
