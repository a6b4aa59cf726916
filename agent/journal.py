"""What survives the agent: the records of jobs, held tasks and containers, in a log to which each change is appended.

A record is with the kernel before anything is done that depends on it: the next agent finds it, however this one ended.
A thread brings the log to the disk every :data:`SYNC_S` seconds, so that the event loop never waits for a disk that is
busy with the work of others. A crash of the host ends the containers, and may take the records of its last moment.

A log begins with all records that there are. When it has grown to several times their size a new one is begun, and the
old one is removed once the new one is on the disk. Keys are kept as hashes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import TypeVar

import msgspec
import structlog

from agent.core import draining, tasks, turns
from agent.core.records import ContainerRecord, HeldTask, JobRecord, TaskEnd
from penstock.wire.cluster_api import Draining


class LastLauncher(msgspec.Struct, kw_only=True):
    """The launcher that was asked to start the recorded containers, and the root of its cgroup tree, if it has one."""

    instance: str
    cgroup_root: str = ""


LAUNCHER = "launcher"
_ROOMS: dict[str, type[msgspec.Struct]] = {
    "jobs": JobRecord,
    "tasks": HeldTask,
    tasks.ENDS: TaskEnd,
    "containers": ContainerRecord,
    draining.ROOM: Draining,
    turns.ROOM: turns.Waits,
    LAUNCHER: LastLauncher,
}
#: A crash of the host takes the records of so many seconds at most, and of as long as the disk took for those before.
SYNC_S = 0.2
#: A log is replaced when it is larger than this and has several times the bytes of the records that there are.
_LEAST_BYTES, _TIMES_RECORDS = 1 << 20, 4
_KEY_LENGTH = 40
_LOG = re.compile(r"log-([0-9]{8})\Z")
#: Before each entry: its length, and the CRC-32 of it.
_FRAME = Struct(">II")
_MAX_ENTRY_BYTES = 1 << 28
T = TypeVar("T", bound=msgspec.Struct)
log = structlog.get_logger()


class _Entry(msgspec.Struct, array_like=True):
    """A change: ``value`` is the encoded record, None where it is removed. In the first entry of a log ``room`` is
    empty and ``key`` the number of entries that follow it as the log's beginning."""

    room: str
    key: str
    value: bytes | None = None


_DECODER = msgspec.msgpack.Decoder(_Entry)


class _Log:
    """One file that is appended to. ``size_bytes`` is its length up to the end of the last whole entry.

    ``torn``: a part of an entry stands behind that and cannot be cut off, so that what came after it would not be read.
    """

    def __init__(self, path: Path) -> None:
        """Open it, or begin it. Raises OSError."""
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size_bytes = 0
        self.torn = False

    def append(self, data: bytes) -> None:
        """Add whole entries, or nothing. Raises OSError."""
        rest = memoryview(data)
        try:
            while rest:  # a disk that gets full takes a part before it refuses
                rest = rest[os.write(self.descriptor, rest) :]
        except OSError:
            self.torn = True
            os.ftruncate(self.descriptor, self.size_bytes)
            self.torn = False
            raise
        self.size_bytes += len(data)

    def remove(self) -> None:
        """Close it and remove it. Raises OSError."""
        os.close(self.descriptor)
        self.path.unlink(missing_ok=True)


class Journal:
    """Records by room and key; ``writes`` counts what was written or removed since the start of the agent.

    ``unwritten`` holds what the disk did not take: the record before it is still there, and :meth:`retry` tries again.
    """

    def __init__(self, directory: Path) -> None:
        """Read what the journal has.

        Raises:
            OSError: it can be neither read nor begun.
        """
        self._directory = directory
        self.writes = 0
        self.unwritten: dict[tuple[str, str], object | None] = {}
        self.why = ""  # the latest refusal of the disk
        self._records: dict[tuple[str, str], bytes] = {}
        self._records_bytes = 0
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._log, self._old = self._open()
        self._new_names = True  # in the directory, since it was synced
        self._not_synced: OSError | None = None
        self._appended = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()  # of _log and _old, between the event loop and the thread
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Bring to the disk what is written, from now on, in a thread."""
        self._thread = threading.Thread(target=self._keep_synced, name="journal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Bring the rest to the disk; afterwards nothing can be written."""
        self._over.set()
        self._appended.set()
        if self._thread is not None:
            self._thread.join()
        with contextlib.suppress(OSError):  # whoever comes next reads what the kernel has
            self.sync()
        os.close(self._log.descriptor)

    def write(self, room: str, key: str, value: object | None) -> bool:
        """Replace a record, or remove it; return whether it is written."""
        self.writes += 1
        try:
            self._write(room, key, value)
        except OSError as error:
            self._refused(room, key, value, error)
            return False
        self.unwritten.pop((room, key), None)
        return True

    def retry(self) -> None:
        """Write what the disk did not take before.

        Raises:
            OSError: it does not take it now, either.
        """
        for (room, key), value in list(self.unwritten.items()):
            self._write(room, key, value)
            del self.unwritten[room, key]
        if self._not_synced is not None:
            # What the kernel could not bring to the disk it forgets (fsync(2)): all of it goes into another file.
            self._begin_anew()
            self._not_synced = None
            self._appended.set()

    def read(self, room: str, of: type[T]) -> list[T]:
        """Return every record of a room. One that cannot be read is set aside as ``….bad`` and logged."""
        assert _ROOMS[room] is of
        found: list[T] = []
        for (of_room, key), data in list(self._records.items()):
            if of_room == room:
                try:
                    found.append(msgspec.msgpack.decode(data, type=of))
                except msgspec.DecodeError as error:
                    log.error("journal record unreadable, set aside", room=room, key=key, error=str(error))
                    self._set_aside(f"{room}-{key}.bad", data)
                    self._keep(room, key, None)
        return found

    def sync(self) -> None:
        """Wait until the disk has all that was written before this call; called by the thread.

        Raises:
            OSError: the disk refuses.
        """
        with self._lock:
            current, old, self._old = self._log, self._old, []
            new_names, self._new_names = self._new_names, False
        try:
            os.fdatasync(current.descriptor)
            if new_names:
                _sync_directory(self._directory)
        except OSError as error:
            with self._lock:
                self._old = old + self._old
                self._new_names |= new_names
            self._not_synced = error
            raise
        for each in old:
            each.remove()

    # ------------------------------------------------------------ writing

    def _write(self, room: str, key: str, value: object | None) -> None:
        key = hashlib.sha256(key.encode()).hexdigest()[:_KEY_LENGTH]
        if value is None and (room, key) not in self._records:
            return
        data = None if value is None else msgspec.msgpack.encode(value)
        if data is not None and data == self._records.get((room, key)):
            return
        if self._log.torn:
            self._begin_anew()
        self._log.append(_framed(_Entry(room, key, data)))
        self._keep(room, key, data)
        self._appended.set()
        if self._log.size_bytes > max(_LEAST_BYTES, _TIMES_RECORDS * self._records_bytes):
            with contextlib.suppress(OSError):  # the disk has no room for another: this one is whole
                self._begin_anew()

    def _keep(self, room: str, key: str, data: bytes | None) -> None:
        before = self._records.pop((room, key), b"")
        self._records_bytes -= len(before)
        if data is not None:
            self._records[room, key] = data
            self._records_bytes += len(data)

    def _begin_anew(self) -> None:
        """Go on in another file, which begins with all records. Raises OSError: this one stays."""
        number = int(_LOG.fullmatch(self._log.path.name)[1]) + 1  # type: ignore[index] # we named it
        fresh = _begin(self._directory / f"log-{number:08}", self._records)
        with self._lock:
            self._old.append(self._log)
            self._log, self._new_names = fresh, True

    def _refused(self, room: str, key: str, value: object | None, error: OSError) -> None:
        if not self.unwritten:
            log.error("the journal cannot be written; tried again with each sample", why=str(error))
        self.why = f"{error.strerror}: {self._directory}"
        self.unwritten[room, key] = value

    def _keep_synced(self) -> None:
        """The thread: what is written while the disk is busy is synced together."""
        while not self._over.is_set():
            self._appended.wait()
            self._appended.clear()
            with contextlib.suppress(OSError):  # :meth:`retry` tells it
                self.sync()
            self._over.wait(SYNC_S)

    # ------------------------------------------------------------ reading

    def _open(self) -> tuple[_Log, list[_Log]]:
        """Read the newest log that was begun completely, and go on in it; the others are to be removed."""
        found = sorted(
            (path for path in self._directory.iterdir() if _LOG.fullmatch(path.name) and path.is_file()), reverse=True
        )
        for path in found:
            if (read := self._read_log(path)) is not None:
                return read, [_Log(other) for other in found if other != path]
        number = int(_LOG.fullmatch(found[0].name)[1]) + 1 if found else 1  # type: ignore[index] # filtered above
        return _begin(self._directory / f"log-{number:08}", {}), [_Log(other) for other in found]

    def _read_log(self, path: Path) -> _Log | None:
        """Fill the records from it; None: it was not begun completely, or the disk does not give it."""
        self._records, self._records_bytes = {}, 0
        try:
            data = path.read_bytes()
        except OSError as error:
            log.error("the journal cannot be read, set aside", path=str(path), why=str(error))
            path.replace(path.with_suffix(".bad"))
            return None
        entries = list(_entries(data))
        if not entries or len(entries) <= int(entries[0][0].key):
            return None
        for entry, _ in entries[1:]:
            self._keep(entry.room, entry.key, entry.value)
        end = entries[-1][1]
        if end < len(data):
            log.warning("the journal ends in the middle of an entry, the rest is set aside", path=str(path),
                        bytes=len(data) - end)  # fmt: skip
            self._set_aside(f"{path.name}.bad", data[end:])
        opened = _Log(path)
        opened.size_bytes = end
        os.ftruncate(opened.descriptor, end)
        return opened

    def _set_aside(self, name: str, data: bytes) -> None:
        try:
            (self._directory / name).write_bytes(data)
        except OSError as still:
            log.warning("what cannot be read cannot be set aside", path=str(self._directory / name), why=str(still))


def _framed(entry: _Entry) -> bytes:
    data = msgspec.msgpack.encode(entry)
    return _FRAME.pack(len(data), zlib.crc32(data)) + data


def _begin(path: Path, records: dict[tuple[str, str], bytes]) -> _Log:
    """A log that has these records. Raises OSError: it is not there."""
    path.unlink(missing_ok=True)
    made = _Log(path)
    first = _framed(_Entry("", str(len(records))))
    try:
        made.append(first + b"".join(_framed(_Entry(room, key, data)) for (room, key), data in records.items()))
    except OSError:
        made.remove()
        raise
    return made


def _entries(data: bytes) -> Iterator[tuple[_Entry, int]]:
    """Each whole entry, and where it ends."""
    at = 0
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        begin, at = at + _FRAME.size, at + _FRAME.size + length
        if length > _MAX_ENTRY_BYTES or at > len(data) or zlib.crc32(data[begin:at]) != checksum:
            return
        try:
            yield _DECODER.decode(data[begin:at]), at
        except msgspec.DecodeError:
            return


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
