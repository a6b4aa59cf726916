"""What survives the agent: one small file per job, held task and container, replaced whole.

A file's data is on the disk before it replaces the one before. How a container or task ended is there for good before
anything of it is removed: that outlives the host, too. File names are hashes of keys, so that nothing that a client
named becomes a path.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from agent.core import draining, tasks, turns
from agent.core.records import ContainerRecord, HeldTask, JobRecord, TaskEnd
from penstock.durable import replace_file
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
#: Rooms whose latest records a crash of the host may take: they are written again every few seconds, or are for
#: frameworks on this host, which end with it.
_UNSYNCED = frozenset({turns.ROOM, tasks.ENDS})
_NAME_LENGTH = 40
_RECORD = re.compile(rf"[0-9a-f]{{{_NAME_LENGTH}}}(\.new)?\Z")
T = TypeVar("T", bound=msgspec.Struct)
log = structlog.get_logger()


class Journal:
    """Records by room and key; ``writes`` counts what was written or removed since the start of the agent.

    ``unwritten`` holds what the disk did not take: the record before it is still there, and :meth:`retry` tries again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.writes = 0
        self.unwritten: dict[tuple[str, str], object | None] = {}
        self.why = ""  # the latest refusal of the disk
        for room in _ROOMS:
            (directory / room).mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, room: str, key: str, value: object | None) -> bool:
        """Replace a record, or remove it; return whether the disk took it."""
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

    def read(self, room: str, of: type[T]) -> list[T]:
        """Return every record of a room. One that cannot be read is set aside as ``….bad`` and logged."""
        assert _ROOMS[room] is of
        records: list[T] = []
        for path in sorted((self._directory / room).iterdir()):
            if path.suffix == ".bad":
                continue
            if path.is_dir() or not _RECORD.match(path.name):
                log.warning("not a record of the journal, left alone", path=str(path))
            elif path.suffix == ".new":
                path.unlink()  # the agent died while writing it; the record before it is whole
            else:
                try:
                    records.append(msgspec.msgpack.decode(path.read_bytes(), type=of))
                except (msgspec.DecodeError, OSError) as error:
                    _set_aside(path, error)
        return records

    def _write(self, room: str, key: str, value: object | None) -> None:
        path = self._directory / room / hashlib.sha256(key.encode()).hexdigest()[:_NAME_LENGTH]
        if value is None:
            path.unlink(missing_ok=True)
            return
        sync = room not in _UNSYNCED
        final = sync and getattr(value, "ended", None) is not None
        replace_file(path, msgspec.msgpack.encode(value), sync=sync, sync_directory=final)

    def _refused(self, room: str, key: str, value: object | None, error: OSError) -> None:
        if not self.unwritten:
            log.error("the journal cannot be written; tried again with each sample", why=str(error))
        self.why = f"{error.strerror}: {self._directory}"
        self.unwritten[room, key] = value


def _set_aside(path: Path, error: Exception) -> None:
    log.error("journal record unreadable, set aside", path=str(path), error=str(error))
    try:
        path.replace(path.with_suffix(".bad"))
    except OSError as still:
        log.warning("an unreadable record cannot be set aside", path=str(path), why=str(still))
