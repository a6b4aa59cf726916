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

from agent.cgroups.filesystem import KERNEL, Access, Gone, NotSupported

#: What the kernel answers about a cgroup that was removed: ENOENT to whoever looks for it or writes to a file opened
#: before (cgroup_kn_lock_live), ENODEV to whoever reads one (kernfs).
_VANISHED = (errno.ENOENT, errno.ENODEV)


class V2Controller(Controller):  # type: ignore[misc] # cgroupspy has no type hints
    """The files of one cgroup version 2 directory."""

    def __init__(self, path: Path | bytes, filesystem: Access = KERNEL) -> None:
        super().__init__(SimpleNamespace(full_path=os.fsencode(path)))
        self._filesystem = filesystem
        self._prefix = os.fsencode(path) + b"/"

    def filepath(self, filename: bytes) -> bytes:
        """The full path to a file; without os.path.join, a microsecond less for each of thousands of readings."""
        return self._prefix + filename

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

    def exchange(self, interface: str, value: object) -> Any:
        """Set an attribute; return what the kernel says of it then.

        Raises:
            Gone, NotSupported, OSError: as :meth:`set_property`.
        """
        declared = self.get_interface(interface)
        path = self.filepath(declared.filename)
        try:
            text = self._filesystem.exchange(path, str(declared.sanitize_set(value)))
        except OSError as error:
            raise self._meaning(error, path) from None
        return _understood(declared, text.strip(), path)

    def filename(self, interface: str) -> str:
        """The kernel's name of what is an attribute here."""
        return str(self.get_interface(interface).filename.decode())

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
        if self.writeonly:
            raise RuntimeError("this file can only be written")
        return _understood(self, instance.get_property(self.filename), instance.filepath(self.filename))

    def __set__(self, instance: V2Controller, value: Any) -> None:
        super().__set__(instance, value)


def _understood(interface: BaseFileInterface, text: str, path: bytes) -> Any:
    """Return what a file's text means.

    Raises:
        OSError: EIO: nothing that such a file says.
    """
    try:
        return interface.sanitize_get(text)
    except (ValueError, LookupError):
        raise OSError(errno.EIO, "it does not say what this file says", os.fsdecode(path)) from None


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
        return self.parse(value)

    @staticmethod
    def parse(value: str) -> dict[str, int]:
        """The text of such a file."""
        fields = value.split()
        return dict(zip(fields[::2], map(int, fields[1::2]), strict=True))


class OneKey(Interface):
    """One value of a flat keyed file, for readings so frequent that the rest would cost more than the system call."""

    readonly = True

    def __init__(self, filename: str, key: str) -> None:
        super().__init__(filename)
        self._key = f"\n{key} "

    def sanitize_get(self, value: str) -> int:
        """From the kernel; 0 where the key is not there."""
        return int(f"\n{value}".partition(self._key)[2].partition("\n")[0] or 0)


class NestedKeyed(Interface):
    """``device key=value key=value …`` lines (nested keyed); written one line at a time."""

    def sanitize_get(self, value: str) -> dict[str, dict[str, int | None]]:
        """From the kernel. A device may stand there without any pair (io.stat of one that was never used).

        What is no whole number is left out (io.cost adds ``cost.vrate=100.00``).
        """
        parsed: dict[str, dict[str, int | None]] = {}
        for line in value.splitlines():
            device, *pairs = line.split()
            fields: dict[str, int | None] = {}
            for pair in pairs:
                key, _, number = pair.partition("=")
                if number == "max" or number.isdigit():
                    fields[key] = None if number == "max" else int(number)
            parsed[device] = fields
        return parsed

    def sanitize_set(self, value: tuple[str, dict[str, int | None]]) -> str:
        """To the kernel: keys that are not named keep their values."""
        device, fields = value
        return " ".join([device, *(f"{k}={'max' if v is None else v}" for k, v in fields.items())])


def holds(wanted: Any, found: Any, granularity: int = 1) -> bool:
    """Whether what was read is what was wanted; the kernel may round down by less than ``granularity``."""
    both = isinstance(found, int) and isinstance(wanted, int)
    return 0 <= wanted - found < granularity if both else bool(found == wanted)


def set_and_check(controller: V2Controller, name: str, value: Any, *, granularity: int = 1, read: bool = True) -> bool:
    """Write unless it stands there already, then read back; whether it was written.

    Args:
        granularity: the kernel may round down by less than this (memory: a page).
        read: look first. Not worth it where something else is known to stand there.

    Raises:
        OSError: refused by the kernel, or something else was read back.
    """
    if read and holds(value, getattr(controller, name), granularity):
        return False
    found = controller.exchange(name, value)
    if not holds(value, found, granularity):
        raise OSError(errno.EIO, f"wrote {value!r}, read back {found!r}", controller.filename(name))
    return True
