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
from typing import Any, Protocol

from cgroupspy.controllers import Controller
from cgroupspy.interfaces import BaseFileInterface

_READ_BYTES = 64 * 1024
#: What the kernel answers about a cgroup that was removed: ENOENT to whoever looks for it or writes to a file opened
#: before (cgroup_kn_lock_live), ENODEV to whoever reads one (kernfs).
_VANISHED = (errno.ENOENT, errno.ENODEV)


class Gone(FileNotFoundError):  # noqa: N818 - an ordinary result more than an error
    """The cgroup vanished: an ordinary result, for whoever asks to handle."""


class NotSupported(OSError):  # noqa: N818 - it says what is so
    """The file is not there though the cgroup is: the kernel or the delegation lacks it."""


class Filesystem(Protocol):
    """What is done to a cgroup2 file system; tests bring one of their own (penstock.testing.fake_cgroups).

    Every method raises the OSError that the kernel would.
    """

    def read(self, path: bytes) -> str:
        """The whole of a file."""
        ...

    def write(self, path: bytes, text: str) -> None:
        """One write, as the kernel wants it."""
        ...

    def open(self, path: bytes) -> int:
        """A descriptor to write to."""
        ...

    def exists(self, path: bytes) -> bool:
        """Whether there is such a file or directory."""
        ...

    def mkdir(self, path: bytes) -> None:
        """Make a cgroup."""
        ...

    def rmdir(self, path: bytes) -> None:
        """Remove a cgroup."""
        ...

    def children(self, path: bytes) -> list[str]:
        """The names of the cgroups directly below."""
        ...


class Kernel:
    """The real one."""

    def read(self, path: bytes) -> str:
        """Until the end: lists come a page at a time (seq_file), so one read would lose pids of a large cgroup."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(descriptor, _READ_BYTES):
                parts.append(part)
            return b"".join(parts).decode()
        finally:
            os.close(descriptor)

    def write(self, path: bytes, text: str) -> None:
        """Unbuffered."""
        descriptor = self.open(path)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def open(self, path: bytes) -> int:
        """Never creates."""
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def exists(self, path: bytes) -> bool:
        """Without following what cannot be there anyway."""
        return os.path.lexists(path)

    def mkdir(self, path: bytes) -> None:
        """One level."""
        Path(os.fsdecode(path)).mkdir()

    def rmdir(self, path: bytes) -> None:
        """The kernel's files in it do not count."""
        Path(os.fsdecode(path)).rmdir()

    def children(self, path: bytes) -> list[str]:
        """In no order."""
        with os.scandir(path) as entries:
            return [os.fsdecode(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]


KERNEL = Kernel()


class V2Controller(Controller):  # type: ignore[misc] # cgroupspy has no type hints
    """The files of one cgroup version 2 directory."""

    def __init__(self, path: Path | bytes, filesystem: Filesystem = KERNEL) -> None:
        super().__init__(SimpleNamespace(full_path=os.fsencode(path)))
        self._filesystem = filesystem

    def get_property(self, filename: bytes) -> str:
        """Called by cgroupspy's descriptors.

        Raises:
            Gone: the cgroup is not there (any more).
            NotSupported: the cgroup is there, the file is not.
        """
        path = self.filepath(filename)
        try:
            return self._filesystem.read(path).strip()
        except OSError as error:
            raise self._meaning(error, path) from None

    def set_property(self, filename: bytes, value: object) -> None:
        """Called by cgroupspy's descriptors.

        Raises:
            Gone, NotSupported: as :meth:`get_property`.
            OSError: what the kernel says to the value (EINVAL, EBUSY, …), with the path.
        """
        path = self.filepath(filename)
        try:
            self._filesystem.write(path, str(value))
        except OSError as error:
            raise self._meaning(error, path) from None

    def has(self, filename: str) -> bool:
        """Whether the file is there."""
        return self._filesystem.exists(self.filepath(filename.encode()))

    def open(self, filename: str) -> int:
        """A descriptor of a file, for whoever shall write to it later.

        Raises:
            Gone, NotSupported: as :meth:`get_property`.
        """
        path = self.filepath(filename.encode())
        try:
            return self._filesystem.open(path)
        except OSError as error:
            raise self._meaning(error, path) from None

    def _meaning(self, error: OSError, path: bytes) -> OSError:
        name = os.fsdecode(path)
        if error.errno in _VANISHED:
            if not self._filesystem.exists(self.node.full_path):
                return Gone(error.errno, "the cgroup vanished", name)
            if not self._filesystem.exists(path):
                return NotSupported(error.errno, "this kernel or delegation lacks the file", name)
        return OSError(error.errno, os.strerror(error.errno or 0), name)


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


class Number(Interface):
    """A number as it stands. (cgroupspy's IntegerFile reads -1 as None, which is version 1's way to say unlimited.)"""

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
        return dict(zip(fields[::2], map(int, fields[1::2]), strict=True))


class NestedKeyed(Interface):
    """``device key=value key=value …`` lines (nested keyed); written one line at a time."""

    def sanitize_get(self, value: str) -> dict[str, dict[str, int | None]]:
        """From the kernel. A device may stand there without any pair (io.stat of one that was never used)."""
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


def set_and_check(controller: V2Controller, name: str, value: Any, *, granularity: int = 1) -> None:
    """Write unless it stands there already, then read back.

    Args:
        granularity: the kernel may round down by less than this (memory: a page).

    Raises:
        OSError: refused by the kernel, or something else was read back.
    """

    def holds(found: Any) -> bool:
        both = isinstance(found, int) and isinstance(value, int)
        return 0 <= value - found < granularity if both else bool(found == value)

    if holds(getattr(controller, name)):
        return
    setattr(controller, name, value)
    found = getattr(controller, name)
    if not holds(found):
        raise OSError(errno.EIO, f"wrote {value!r}, read back {found!r}", name)
