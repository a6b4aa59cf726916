"""What is done to a cgroup2 file system, and the kernel's own: the root of everything else here is injected."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import Protocol

_READ_BYTES = 64 * 1024
#: A list that goes on fills its page up to the line that does not fit (fs/seq_file.c), so less than this is the end.
_END_BYTES = 2048
#: Longer than any file that is kept open, so that one system call reads it whole.
_KEPT_BYTES = 16 * 1024


class Gone(FileNotFoundError):  # noqa: N818 - an ordinary result more than an error
    """The cgroup vanished: an ordinary result, for whoever asks to handle."""


class NotSupported(OSError):  # noqa: N818 - it says what is so
    """The file is not there though the cgroup is: the kernel or the delegation lacks it."""


class Kept(Protocol):
    """A file that stays open to be read again and again."""

    def read(self) -> str:
        """The whole of it as it is now; OSError ENODEV once its cgroup was removed."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class Access(Protocol):
    """What is done to files."""

    def read(self, path: bytes) -> str:
        """The whole of a file."""
        ...

    def write(self, path: bytes, text: str) -> None:
        """One write, as the kernel wants it."""
        ...

    def exchange(self, path: bytes, text: str) -> str:
        """One write to a short file, and what it says then."""
        ...

    def open(self, path: bytes) -> int:
        """A descriptor to write to."""
        ...

    def exists(self, path: bytes) -> bool:
        """Whether there is such a file or directory."""
        ...


class Filesystem(Access, Protocol):
    """What is done to a cgroup2 file system; tests bring one of their own (penstock.testing.fake_cgroups).

    Every method raises the OSError that the kernel would.
    """

    def keep(self, path: bytes) -> Kept:
        """Open a file to read it often."""
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
    """The real one."""

    def read(self, path: bytes) -> str:
        """Until the end: lists come a page at a time (seq_file), so one read would lose pids of a large cgroup."""
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

    def keep(self, path: bytes) -> Kept:
        """Not for lists: these come a page at a time, whatever is asked for."""
        return _KeptDescriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def write(self, path: bytes, text: str) -> None:
        """Unbuffered."""
        descriptor = self.open(path)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def exchange(self, path: bytes, text: str) -> str:
        """Through one descriptor."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            return os.pread(descriptor, _READ_BYTES, 0).decode()
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


class Allowance:
    """How many descriptors may be kept open for counters: half of what the process may have, unless told otherwise."""

    def __init__(self, descriptors: int | None = None) -> None:
        self.left = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 if descriptors is None else descriptors


class Keeping:
    """Reads counters through descriptors that stay open (3 µs instead of 12), everything else as always.

    Beyond the allowance files are opened for each reading. Not for threads: a descriptor that one closes, another
    would still read.
    """

    def __init__(self, filesystem: Filesystem, names: frozenset[bytes], allowance: Allowance) -> None:
        self._filesystem = filesystem
        self._names = names
        self._allowance = allowance
        self._kept: dict[bytes, Kept] = {}

    def read(self, path: bytes) -> str:
        """See Access."""
        kept = self._kept.get(path) or self._keep(path)
        if kept is None:
            return self._filesystem.read(path)
        try:
            return kept.read()
        except OSError as error:
            self._let_go(path)
            if error.errno != errno.ENODEV:
                raise
            return self._filesystem.read(path)  # removed; and made again since, perhaps

    def exists(self, path: bytes) -> bool:
        """See Access."""
        return self._filesystem.exists(path)

    def write(self, path: bytes, text: str) -> None:
        """See Access."""
        self._filesystem.write(path, text)

    def exchange(self, path: bytes, text: str) -> str:
        """See Access."""
        return self._filesystem.exchange(path, text)

    def open(self, path: bytes) -> int:
        """See Access."""
        return self._filesystem.open(path)

    def close(self) -> None:
        """Let go of all; the next reading opens anew."""
        for path in list(self._kept):
            self._let_go(path)

    def _keep(self, path: bytes) -> Kept | None:
        if self._allowance.left <= 0 or path[path.rfind(b"/") + 1 :] not in self._names:
            return None
        kept = self._kept[path] = self._filesystem.keep(path)
        self._allowance.left -= 1
        return kept

    def _let_go(self, path: bytes) -> None:
        self._kept.pop(path).close()
        self._allowance.left += 1


class ReadingOnce:
    """Reads each file once until it is written: for a check of everything that stands there. Not to be kept."""

    def __init__(self, filesystem: Access) -> None:
        self._filesystem = filesystem
        self._texts: dict[bytes, str] = {}

    def read(self, path: bytes) -> str:
        """See Access."""
        if path not in self._texts:
            self._texts[path] = self._filesystem.read(path)
        return self._texts[path]

    def write(self, path: bytes, text: str) -> None:
        """See Access."""
        self._texts.pop(path, None)
        self._filesystem.write(path, text)

    def exchange(self, path: bytes, text: str) -> str:
        """See Access."""
        self._texts.pop(path, None)
        said = self._texts[path] = self._filesystem.exchange(path, text)
        return said

    def open(self, path: bytes) -> int:
        """See Access."""
        return self._filesystem.open(path)

    def exists(self, path: bytes) -> bool:
        """See Access."""
        return path in self._texts or self._filesystem.exists(path)
