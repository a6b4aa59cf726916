"""Access to a cgroup2 file system; everything else in this package gets an implementation injected."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from pathlib import Path
from typing import Protocol

#: Errors that pass once other descriptors are closed, or memory is freed.
PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_READ_BYTES = 64 * 1024
_NO_ATTRIBUTE = frozenset({errno.ENODATA, errno.ENOTSUP})
#: A list that goes on fills its page up to the line that does not fit (fs/seq_file.c), so a shorter read is the end.
_END_BYTES = 2048
#: More than the size of any file that is kept open, so that one system call reads it whole.
_KEPT_BYTES = 16 * 1024
#: The links of a directory without directories in it (kernfs_refresh_inode(), Linux 3.14).
_LINKS_OF_NONE = 2


class Gone(FileNotFoundError):  # noqa: N818 - an ordinary result more than an error
    """The cgroup vanished: an ordinary result that callers handle."""


class NotSupported(OSError):  # noqa: N818 - describes a state
    """The cgroup exists, the file does not: the kernel or the delegation lacks it."""


class OpenFile(Protocol):
    """A file that stays open for repeated reads."""

    def read(self) -> str:
        """Read the whole file; OSError ENODEV once its cgroup was removed."""
        ...

    def close(self) -> None:
        """Close the descriptor."""
        ...


class Filesystem(Protocol):
    """Operations on a cgroup2 file system; tests supply their own (`tests/fakes/fake_cgroups.py`).

    Every method raises the OSError that the kernel would.
    """

    def read(self, path: bytes) -> str:
        """Read a whole file."""
        ...

    def write(self, path: bytes, text: str) -> None:
        """Write with a single system call, as the kernel requires."""
        ...

    def exchange(self, path: bytes, text: str) -> str:
        """Write to a short file with one system call; return what the file then says."""
        ...

    def open(self, path: bytes) -> int:
        """Open a file for writing; return the descriptor."""
        ...

    def exists(self, path: bytes) -> bool:
        """Return whether the file or directory exists."""
        ...

    def keep(self, path: bytes) -> OpenFile:
        """Open a file for repeated reads."""
        ...

    def mkdir(self, path: bytes) -> None:
        """Create a cgroup."""
        ...

    def rmdir(self, path: bytes) -> None:
        """Remove a cgroup."""
        ...

    def children(self, path: bytes) -> list[str]:
        """Return the names of the cgroups directly below."""
        ...

    def attribute(self, path: bytes, name: str) -> bytes | None:
        """Return an extended attribute of a cgroup (user.*, Linux 5.7); None without it."""
        ...

    def set_attribute(self, path: bytes, name: str, value: bytes | None) -> None:
        """Set an extended attribute of a cgroup; None removes it."""
        ...


class _KeptDescriptor:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> str:
        text = part = os.pread(self._descriptor, _KEPT_BYTES, 0)
        while len(part) == _KEPT_BYTES:
            part = os.pread(self._descriptor, _KEPT_BYTES, len(text))
            text += part
        return text.decode()

    def close(self) -> None:
        os.close(self._descriptor)


class Kernel:
    """The kernel's file system."""

    def read(self, path: bytes) -> str:
        """Read until the end: lists come a page at a time (seq_file), so one read would lose pids of a large cgroup."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(descriptor, _READ_BYTES):
                parts.append(part)
                if len(part) < _END_BYTES:
                    break
            return b"".join(parts).decode()
        finally:
            os.close(descriptor)

    def keep(self, path: bytes) -> OpenFile:
        """Open a file to keep. Not for lists: these come a page at a time, whatever size is asked for."""
        return _KeptDescriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def write(self, path: bytes, text: str) -> None:
        """Write unbuffered."""
        descriptor = self.open(path)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def exchange(self, path: bytes, text: str) -> str:
        """Write and read through one descriptor."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            return os.pread(descriptor, _READ_BYTES, 0).decode()
        finally:
            os.close(descriptor)

    def open(self, path: bytes) -> int:
        """Open for writing; never creates a file."""
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def exists(self, path: bytes) -> bool:
        """Return whether the path exists, without following symbolic links."""
        return os.path.lexists(path)

    def mkdir(self, path: bytes) -> None:
        """Create one level."""
        Path(os.fsdecode(path)).mkdir()

    def rmdir(self, path: bytes) -> None:
        """Remove a directory; the kernel's files in it are no obstacle."""
        Path(os.fsdecode(path)).rmdir()

    def children(self, path: bytes) -> list[str]:
        """Return the names in no particular order. A directory with two links has none and need not be read."""
        if os.stat(path).st_nlink == _LINKS_OF_NONE:  # noqa: PTH116 - a Path takes three times as long
            return []
        with os.scandir(path) as entries:
            return [os.fsdecode(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]

    def attribute(self, path: bytes, name: str) -> bytes | None:
        """Read it; a kernel without such attributes has none."""
        try:
            return os.getxattr(path, name)
        except OSError as error:
            if error.errno in _NO_ATTRIBUTE:
                return None
            raise

    def set_attribute(self, path: bytes, name: str, value: bytes | None) -> None:
        """Replace it, or remove it if it is there."""
        if value is not None:
            os.setxattr(path, name, value)
        elif self.attribute(path, name) is not None:
            os.removexattr(path, name)


KERNEL = Kernel()


def cgroups_below(path: bytes, filesystem: Filesystem = KERNEL) -> list[bytes]:
    """Return the cgroups below this one, parents first; those that vanish meanwhile may be missing."""
    found, pending = list[bytes](), [path]
    while pending:
        parent = pending.pop()
        with contextlib.suppress(OSError):
            below = [parent + b"/" + os.fsencode(name) for name in filesystem.children(parent)]
            found += below
            pending += below
    return found


class FdBudget:
    """The number of descriptors that may stay open for counters: by default half of the process's limit."""

    def __init__(self, descriptors: int | None = None) -> None:
        self.left = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 if descriptors is None else descriptors


class FdCache:
    """Reads counters through descriptors that stay open (3 µs instead of 12), other files through the file system.

    Beyond the budget, files are opened for each read. Not thread-safe: one thread could close a descriptor that
    another still reads.
    """

    def __init__(self, filesystem: Filesystem, names: frozenset[bytes], fd_budget: FdBudget) -> None:
        self._filesystem = filesystem
        self._names = names
        self._fd_budget = fd_budget
        self._kept: dict[bytes, OpenFile] = {}

    def read(self, path: bytes) -> str:
        """Read a whole file."""
        kept = self._kept.get(path) or self._keep(path)
        if kept is None:
            return self._filesystem.read(path)
        try:
            return kept.read()
        except OSError as error:
            self._let_go(path)
            if error.errno != errno.ENODEV:
                raise
            return self._filesystem.read(path)  # removed, and perhaps created again since

    def close(self) -> None:
        """Close all descriptors; the next read opens them again."""
        for path in list(self._kept):
            self._let_go(path)

    def _keep(self, path: bytes) -> OpenFile | None:
        if self._fd_budget.left <= 0 or path[path.rfind(b"/") + 1 :] not in self._names:
            return None
        kept = self._kept[path] = self._filesystem.keep(path)
        self._fd_budget.left -= 1
        return kept

    def _let_go(self, path: bytes) -> None:
        self._kept.pop(path).close()
        self._fd_budget.left += 1
