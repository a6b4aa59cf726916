"""Reading, writing and typing of cgroup v2 files: the base of every controller in this package.

cgroupspy's own controllers know version 1 only; its descriptors and its ``Controller`` are independent of the version,
so the version 2 controllers are built on them. Reading and writing differ from cgroupspy in two ways: writes go through
``os.write`` (a buffered file swallows EINVAL unless it is closed explicitly), and each write is read back.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cgroupspy.controllers import Controller
from cgroupspy.interfaces import BaseFileInterface, FlagFile

from agent.cgroups.filesystem import KERNEL, Filesystem, Gone, NotSupported

#: The errors of a removed cgroup: ENOENT for a lookup, and for a write to a file opened before (cgroup_kn_lock_live);
#: ENODEV for a read (kernfs).
_VANISHED = (errno.ENOENT, errno.ENODEV)


class V2Controller(Controller):  # type: ignore[misc] # cgroupspy has no type hints
    """The files of one cgroup version 2 directory."""

    def __init__(
        self, path: Path | bytes, filesystem: Filesystem = KERNEL, read: Callable[[bytes], str] | None = None
    ) -> None:
        """``read`` reads a file in another way than the file system, from a cache for example."""
        super().__init__(SimpleNamespace(full_path=os.fsencode(path)))
        self._filesystem = filesystem
        self._read = read or filesystem.read
        self._prefix = os.fsencode(path) + b"/"

    def get_property(self, filename: bytes) -> str:
        """Read a file; called by cgroupspy's descriptors.

        Raises:
            Gone: the cgroup does not exist (any more).
            NotSupported: the cgroup exists, the file does not.
        """
        path = self._prefix + filename
        try:
            return self._read(path).strip()
        except OSError as error:
            raise self._meaning(error, path) from None

    def set_property(self, filename: bytes, value: object) -> None:
        """Write a file; called by cgroupspy's descriptors.

        Raises:
            Gone, NotSupported: as :meth:`get_property`.
            OSError: the kernel refuses the value (EINVAL, EBUSY, …); names the path.
        """
        path = self._prefix + filename
        try:
            self._filesystem.write(path, str(value))
        except OSError as error:
            raise self._meaning(error, path) from None

    def put(self, interface: str, value: Any, *, read: bool = True) -> str:
        """Set an attribute unless it has the value, and read it back; return the name of its file if it was written.

        ``read``: read before writing. Unnecessary if the file is known to have another value.

        Raises:
            Gone, NotSupported, OSError: as :meth:`set_property`, or another value was read back.
        """
        declared: Interface = self.get_interface(interface)
        if read and declared.holds(value, getattr(self, interface)):
            return ""
        path, written = self._prefix + declared.filename, str(declared.sanitize_set(value))
        try:
            text = self._filesystem.exchange(path, written).strip()
        except OSError as error:
            raise self._meaning(error, path) from None
        try:
            found = declared.sanitize_get(text)
        except (ValueError, LookupError):
            raise self.unexpected(declared.filename) from None
        filename: str = declared.filename.decode()
        if not declared.holds(value, found):
            raise OSError(errno.EIO, f"wrote {written!r}, read back {text!r}", filename)
        return filename

    def has(self, filename: str) -> bool:
        """Return whether the file exists."""
        return self._filesystem.exists(self._prefix + filename.encode())

    def open(self, filename: str) -> int:
        """Open a file for later writes; return the descriptor.

        Raises:
            Gone, NotSupported: as :meth:`get_property`.
        """
        path = self._prefix + filename.encode()
        try:
            return self._filesystem.open(path)
        except OSError as error:
            raise self._meaning(error, path) from None

    def unexpected(self, filename: bytes) -> OSError:
        """Return the error of a file with a text that no kernel writes there."""
        return OSError(errno.EIO, "the file's content has an unexpected format", os.fsdecode(self._prefix + filename))

    def _meaning(self, error: OSError, path: bytes) -> OSError:
        name = os.fsdecode(path)
        if error.errno in _VANISHED:
            if not self._filesystem.exists(self.node.full_path):
                return Gone(error.errno, "the cgroup vanished", name)
            if not self._filesystem.exists(path):
                return NotSupported(error.errno, "this kernel or delegation lacks the file", name)
        return OSError(error.errno, os.strerror(error.errno or 0), name)


class Interface(BaseFileInterface):  # type: ignore[misc]
    """cgroupspy's descriptor, with type annotations: a whole number, unless a subclass reads and writes another."""

    def __get__(self, instance: V2Controller, owner: type[V2Controller]) -> Any:
        if self.writeonly:
            raise RuntimeError("this file can only be written")
        text = instance.get_property(self.filename)
        try:
            return self.sanitize_get(text)
        except (ValueError, LookupError):
            raise instance.unexpected(self.filename) from None

    def __set__(self, instance: V2Controller, value: Any) -> None:
        super().__set__(instance, value)

    def sanitize_get(self, value: str) -> Any:
        """Parse the kernel's text."""
        return int(value)

    def sanitize_set(self, value: Any) -> str:
        """Format a value for the kernel."""
        return str(int(value))

    @staticmethod
    def holds(wanted: Any, found: Any) -> bool:
        """Return whether the value read is the value wanted."""
        return bool(found == wanted)


class Flag(FlagFile, Interface):  # type: ignore[misc]
    """``1`` ↔ True, ``0`` ↔ False."""


class MaxOrInteger(Interface):
    """``max`` ↔ None, else a whole number."""

    def sanitize_get(self, value: str) -> int | None:
        """Parse the kernel's text."""
        return None if value == "max" else int(value)

    def sanitize_set(self, value: int | None) -> str:
        """Format a value for the kernel."""
        return "max" if value is None else str(int(value))


class Number(Interface):
    """A plain number. (cgroupspy's IntegerFile reads -1 as None, version 1's notation for unlimited.)"""


class Words(Interface):
    """A line of words, or one number per line."""

    def sanitize_get(self, value: str) -> list[str]:
        """Parse the kernel's text."""
        return value.split()

    def sanitize_set(self, value: list[str]) -> str:
        """Format a value for the kernel."""
        return " ".join(value)


class FlatKeyed(Interface):
    """``key value`` lines (Documentation/admin-guide/cgroup-v2.rst, flat keyed)."""

    readonly = True

    def sanitize_get(self, value: str) -> dict[str, int]:
        """Parse the kernel's text."""
        fields = value.split()
        return dict(zip(fields[::2], map(int, fields[1::2]), strict=True))


class SomeKeys(Interface):
    """Some values of a flat keyed file, for frequent reads: parsing the rest would take ten times the system call."""

    readonly = True

    def __init__(self, filename: str, *keys: str) -> None:
        super().__init__(filename)
        self._keys = tuple((key, f"\n{key} ") for key in keys)

    def sanitize_get(self, value: str) -> dict[str, int]:
        """Parse the kernel's text; missing keys are left out."""
        text, found = f"\n{value}\n", dict[str, int]()
        for key, begins in self._keys:
            if (at := text.find(begins)) >= 0:
                at += len(begins)
                found[key] = int(text[at : text.index("\n", at)])
        return found


class OneKey(Interface):
    """One value of a flat keyed file, likewise."""

    readonly = True

    def __init__(self, filename: str, key: str) -> None:
        super().__init__(filename)
        self._key = f"\n{key} "

    def sanitize_get(self, value: str) -> int:
        """Parse the kernel's text; 0 if the key is missing."""
        return int(f"\n{value}".partition(self._key)[2].partition("\n")[0] or 0)


class StalledTime(Interface):
    """Of a pressure file (Documentation/accounting/psi.rst), the total of ``some`` in µs: more is not needed."""

    readonly = True  # triggers have a descriptor each: agent.cgroups.pressure

    def sanitize_get(self, value: str) -> int:
        """Parse the kernel's text."""
        return int(value.partition("total=")[2].partition("\n")[0])


class NestedKeyed(Interface):
    """``device key=value key=value …`` lines (nested keyed); written one line at a time."""

    def sanitize_get(self, value: str) -> dict[str, dict[str, int | None]]:
        """Parse the kernel's text. A device may have no pairs at all (io.stat of an unused device).

        Values that are not whole numbers are left out (io.cost adds ``cost.vrate=100.00``).
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
        """Format a value for the kernel; keys that are not named keep their values."""
        device, fields = value
        return " ".join([device, *(f"{k}={'max' if v is None else v}" for k, v in fields.items())])

    @staticmethod
    def holds(wanted: tuple[str, dict[str, int | None]], found: dict[str, dict[str, int | None]]) -> bool:
        """Return whether the values read include the values wanted."""
        device, fields = wanted
        has = found.get(device, {})
        return all(has.get(key) == value for key, value in fields.items())
