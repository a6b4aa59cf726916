"""Records of jobs, held tasks, containers and unanswered messages that survive the agent.

Each change is appended to a log, those of one decision by one write. A record is passed to the kernel before anything
is done that depends on it: the next agent finds it, however this one ends. A thread syncs the log to the disk every
:data:`SYNC_S` seconds, so that the event loop never waits for a disk that is busy with other work. A crash of the host
ends the containers, and may lose the records of its last moment.

The log reserves room on the disk for the removal of every record. So a full disk refuses new records only: a task that
has ended, but is recorded, would be taken for a running one by the next agent. A copy-on-write file system (btrfs, ZFS)
may refuse a removal nevertheless.

A log begins with all present records. When it has grown to several times their size, a new one is begun, and the old
one is removed once the new one is on the disk. Keys are stored as hashes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from agent.core import attained_service, cancelled_jobs, draining, origin_journal, starvation
from agent.core.records import CancelledJob, ContainerRecord, HeldTask, JobRecord, TaskEnd, Waits
from agent.disk_reserve import reserve
from agent.journal_entries import entries, framed
from agent.thread_timer import ThreadTimer
from penstock.wire import master_api as api
from penstock.wire.cluster_api import Draining


class LastLauncher(msgspec.Struct, kw_only=True):
    """The launcher that was asked to start the recorded containers, and the root of its cgroup tree, if it has one."""

    instance: str
    cgroup_root: str = ""


LAUNCHER = "launcher"
_ROOMS: dict[str, type[msgspec.Struct]] = {
    "jobs": JobRecord,
    "tasks": HeldTask,
    origin_journal.ENDS: TaskEnd,
    origin_journal.AWAITED: api.AwaitedTask,
    cancelled_jobs.ROOM: CancelledJob,
    "containers": ContainerRecord,
    draining.ROOM: Draining,
    starvation.ROOM: Waits,
    attained_service.ROOM: attained_service.LastCount,
    LAUNCHER: LastLauncher,
    api.TASKS_DONE.name: api.TasksDone,
    api.TASKS_CANCELLED.name: api.TasksCancelled,
    api.JOB_ENDED.name: api.JobEnded,
}
#: A crash of the host loses at most this many seconds of records, plus the duration of two syncs.
SYNC_S = 0.2
#: A log is replaced when it is larger than this and several times larger than the present records.
_LEAST_BYTES, _TIMES_RECORDS = 1 << 20, 4
#: The most that the removal of a record takes in the log: the frame, the name of its room, and its key.
_REMOVAL_BYTES = 96
_KEY_LENGTH = 40
_LOG = re.compile(r"log-([0-9]{8})\Z")
T = TypeVar("T", bound=msgspec.Struct)
log = structlog.get_logger()


class _Log:
    """A file in append mode. ``size_bytes`` is its length up to the end of the last whole entry.

    ``torn``: a partial entry follows that could not be truncated, so that later entries would not be read.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raises OSError."""
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size_bytes = 0
        self.torn = False
        self.reserved_bytes = 0  # of the file's size

    def reserve(self, more_bytes: int) -> None:
        """Let the disk keep room for so many bytes more, better for many at a time. Raises OSError: it is full."""
        try:
            reserve(self.descriptor, self.size_bytes, more_bytes + _LEAST_BYTES)
            more_bytes += _LEAST_BYTES
        except OSError:  # what the disk kept of it stays: truncation would give up earlier reservations, too
            reserve(self.descriptor, self.size_bytes, more_bytes)
        self.reserved_bytes = self.size_bytes + more_bytes

    def append(self, data: bytes) -> None:
        """Append whole entries, or nothing. Raises OSError: nothing is reserved any more."""
        rest = memoryview(data)
        try:
            while rest:  # a disk that fills up takes a part before it refuses
                rest = rest[os.write(self.descriptor, rest) :]
        except OSError:
            self.torn, self.reserved_bytes = True, 0
            os.ftruncate(self.descriptor, self.size_bytes)
            self.torn = False
            raise
        self.size_bytes += len(data)

    def finish(self) -> None:
        """Give up the room that is reserved: nothing more is appended."""
        with contextlib.suppress(OSError):  # it takes room until the file is removed
            os.ftruncate(self.descriptor, self.size_bytes)

    def remove(self) -> None:
        """Close and remove the file. Raises OSError."""
        os.close(self.descriptor)
        self.path.unlink(missing_ok=True)


class Journal:
    """Records by room and key; ``writes`` counts writes and removals since the start of the agent.

    Changes that are added wait for those behind them in the same decision: :meth:`flush` is ``due`` then. ``unwritten``
    holds changes that the disk refused: the former records are still there, and :meth:`retry` tries again.
    """

    def __init__(self, directory: Path) -> None:
        """Read the journal.

        Raises:
            OSError: it can be neither read nor created.
        """
        self._directory = directory
        self.writes = self._records_bytes = 0
        self.due = False
        self._added: dict[tuple[str, str], bytes | None] = {}
        self.unwritten: dict[tuple[str, str], bytes | None] = {}
        self.why = ""  # the disk's latest error
        self._records: dict[tuple[str, str], bytes] = {}
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._log, self._old = self._open()
        self._new_names = True  # in the directory, since it was synced
        self._not_synced: OSError | None = None
        self._sync_due = False  # the thread sets it to false before it syncs
        self._over = False
        self._lock = threading.Lock()  # of _log and _old, between the event loop and the thread
        self._timer: ThreadTimer | None = None
        self._start_timer: Callable[[], object] = lambda: None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that syncs the log to the disk. Raises OSError: no descriptor is free."""
        self._timer = timer = ThreadTimer(SYNC_S)
        self._start_timer = timer.start
        if self._sync_due:
            timer.start()
        self._thread = threading.Thread(target=self._keep_synced, args=(timer,), name="journal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sync the rest to the disk; nothing can be written afterwards."""
        self._over = True
        if self._timer is not None and self._thread is not None:
            self._timer.expire()
            self._thread.join()
            self._timer.close()
        with contextlib.suppress(OSError):  # the next agent reads what the kernel has
            self.sync()
        os.close(self._log.descriptor)

    def add(self, room: str, key: str, value: object | None) -> None:
        """Replace a record, or remove it, at the next :meth:`flush`, which comes before all that depends on it."""
        data = None if value is None else msgspec.msgpack.encode(value)
        self.writes += 1
        self._added[room, key] = data
        self.due = True

    def flush(self) -> None:
        """Write all that was added. If the disk refuses a change, ``unwritten`` has it."""
        added, self._added, self.due = self._added, {}, False
        try:
            self._write(added)
        except OSError:  # a full disk refuses some of them only
            for change, data in added.items():
                self._write_or_keep(change, data)
        else:
            for change in self.unwritten.keys() & added.keys():
                del self.unwritten[change]

    def write(self, room: str, key: str, value: object | None) -> bool:
        """Replace a record, or remove it, now; return whether it is written."""
        self.add(room, key, value)
        self.flush()
        return (room, key) not in self.unwritten

    def retry(self) -> None:
        """Write the changes that the disk refused before.

        Raises:
            OSError: it still refuses.
        """
        for change, data in list(self.unwritten.items()):
            self._write({change: data})
            del self.unwritten[change]
        if self._not_synced is not None:
            # The kernel drops data that it could not write (fsync(2)): all records go into another file.
            self._begin_anew()
            self._not_synced = None
            self._sync_due = True
            self._start_timer()

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

    def _write_or_keep(self, change: tuple[str, str], data: bytes | None) -> None:
        """Write one change, or keep it in ``unwritten``."""
        try:
            self._write({change: data})
        except OSError as error:
            if not self.unwritten:
                log.error("the journal cannot be written; tried again with each sample", why=str(error))
            self.why = f"{error.strerror}: {self._directory}"
            self.unwritten[change] = data
        else:
            self.unwritten.pop(change, None)

    def _write(self, changes: Mapping[tuple[str, str], bytes | None]) -> None:
        """Append the changes that the log does not have. Raises OSError: none of them is written."""
        named = {(room, _hashed(key)): data for (room, key), data in changes.items()}
        fresh = {record: data for record, data in named.items() if data != self._records.get(record)}
        if not fresh:
            return
        if self._log.torn:
            self._begin_anew()
        appended = framed(fresh)
        if any(data is not None for data in fresh.values()):
            more_bytes = len(appended) + _REMOVAL_BYTES * (len(self._records) + len(fresh))
            if self._log.size_bytes + more_bytes > self._log.reserved_bytes:
                self._log.reserve(more_bytes)
        try:
            self._log.append(appended)
        except OSError:
            self._reserve_removals(self._log)
            raise
        for (room, key), data in fresh.items():
            self._keep(room, key, data)
        if not self._sync_due:
            self._sync_due = True
            self._start_timer()
        if self._log.size_bytes > max(_LEAST_BYTES, _TIMES_RECORDS * self._records_bytes):
            with contextlib.suppress(OSError):  # no room for another log: this one is complete
                self._begin_anew()

    def _reserve_removals(self, of: _Log) -> None:
        """Reserve room for the removal of all records, if the disk has it: a truncated log has no reserve."""
        with contextlib.suppress(OSError):
            of.reserve(_REMOVAL_BYTES * len(self._records))

    def _keep(self, room: str, key: str, data: bytes | None) -> None:
        before = self._records.pop((room, key), b"")
        self._records_bytes -= len(before)
        if data is not None:
            self._records[room, key] = data
            self._records_bytes += len(data)

    def _begin_anew(self) -> None:
        """Continue in a new file, which begins with all records. Raises OSError: the present one stays."""
        number = int(_LOG.fullmatch(self._log.path.name)[1]) + 1  # type: ignore[index] # our own file name
        fresh = _begin(self._directory / f"log-{number:08}", self._records)
        self._log.finish()  # while the disk does not sync, each retry leaves a log behind
        with self._lock:
            self._old.append(self._log)
            self._log, self._new_names = fresh, True

    def _keep_synced(self, timer: ThreadTimer) -> None:
        """Run the thread: changes that come together are synced together, as are those made while the disk is busy."""
        while not self._over:
            timer.wait()
            self._sync_due = False
            with contextlib.suppress(OSError):  # :meth:`retry` reports it
                self.sync()

    # ------------------------------------------------------------ reading

    def _open(self) -> tuple[_Log, list[_Log]]:
        """Read the newest log with a complete beginning, and continue in it; the others are to be removed."""
        found = sorted(
            (path for path in self._directory.iterdir() if _LOG.fullmatch(path.name) and path.is_file()), reverse=True
        )
        for path in found:
            if (read := self._read_log(path)) is not None:
                return read, [_Log(other) for other in found if other != path]
        number = int(_LOG.fullmatch(found[0].name)[1]) + 1 if found else 1  # type: ignore[index] # filtered above
        return _begin(self._directory / f"log-{number:08}", {}), [_Log(other) for other in found]

    def _read_log(self, path: Path) -> _Log | None:
        """Fill the records from a log; None: its beginning is incomplete, or it cannot be read."""
        self._records, self._records_bytes = {}, 0
        try:
            data = path.read_bytes()
        except OSError as error:
            log.error("the journal cannot be read, set aside", path=str(path), why=str(error))
            path.replace(path.with_suffix(".bad"))
            return None
        found = list(entries(data))
        if not found or len(found) <= int(found[0][0].key):
            return None
        for entry, _ in found[1:]:
            self._keep(entry.room, entry.key, entry.value)
        opened = _Log(path)
        opened.size_bytes = end = found[-1][1]
        if end < len(data):  # otherwise truncating would only give up the room that is reserved
            log.warning("the journal ends in the middle of an entry, the rest is set aside", path=str(path),
                        bytes=len(data) - end)  # fmt: skip
            self._set_aside(f"{path.name}.bad", data[end:])
            os.ftruncate(opened.descriptor, end)
        self._reserve_removals(opened)  # also for the log of an earlier version, which has no reserve
        return opened

    def _set_aside(self, name: str, data: bytes) -> None:
        try:
            (self._directory / name).write_bytes(data)
        except OSError as still:
            log.warning("unreadable data cannot be set aside", path=str(self._directory / name), why=str(still))


@functools.lru_cache(maxsize=1024)  # a record is written several times: when it comes, changes and goes
def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:_KEY_LENGTH]


def _begin(path: Path, records: dict[tuple[str, str], bytes]) -> _Log:
    """Create a log that has these records. Raises OSError: it does not exist then."""
    path.unlink(missing_ok=True)
    made = _Log(path)
    beginning = framed({("", str(len(records))): None}) + framed(records)
    try:
        made.reserve(len(beginning) + _REMOVAL_BYTES * len(records))
        made.append(beginning)
    except OSError:
        made.remove()
        raise
    return made


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
