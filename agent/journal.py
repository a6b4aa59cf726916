"""What survives the agent: one small file per job, held task and container, replaced whole.

It outlives a crash of the agent, not of the host (no fsync): what it speaks of would be gone with the host too. File
names are hashes of keys, so that nothing that a client named becomes a path.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from agent.core import draining, turns
from agent.core.records import ContainerRecord, HeldTask, JobRecord
from penstock.wire.cluster_api import Draining


class LastLauncher(msgspec.Struct, kw_only=True):
    """The launcher that was asked to start the recorded containers, and the root of its cgroup tree, if it has one."""

    instance: str
    cgroup_root: str = ""


LAUNCHER = "launcher"
_ROOMS: dict[str, type[msgspec.Struct]] = {
    "jobs": JobRecord,
    "tasks": HeldTask,
    "containers": ContainerRecord,
    draining.ROOM: Draining,
    turns.ROOM: turns.Waits,
    LAUNCHER: LastLauncher,
}
T = TypeVar("T", bound=msgspec.Struct)
log = structlog.get_logger()


class Journal:
    """Records by room and key; ``writes`` counts what was written or removed since the start of the agent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.writes = 0
        for room in _ROOMS:
            (directory / room).mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, room: str, key: str, value: object | None) -> None:
        """Replace a record, or remove it."""
        self.writes += 1
        path = self._directory / room / hashlib.sha256(key.encode()).hexdigest()[:40]
        if value is None:
            path.unlink(missing_ok=True)
            return
        fresh = path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, msgspec.msgpack.encode(value))
        finally:
            os.close(descriptor)
        fresh.replace(path)

    def read(self, room: str, of: type[T]) -> list[T]:
        """Every record of a room. One that cannot be read is set aside as ``….bad`` and logged, never guessed at."""
        assert _ROOMS[room] is of
        records: list[T] = []
        for path in sorted((self._directory / room).iterdir()):
            if path.suffix == ".new":
                path.unlink()  # the agent died while writing it; the record before it stands
            elif not path.suffix:
                try:
                    records.append(msgspec.msgpack.decode(path.read_bytes(), type=of))
                except msgspec.DecodeError as error:
                    log.error("journal record unreadable, set aside", path=str(path), error=str(error))
                    path.replace(path.with_suffix(".bad"))
        return records
