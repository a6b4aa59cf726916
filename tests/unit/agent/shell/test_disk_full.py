"""A disk that is full: the record before stays whole, a launch is refused, and nothing accepted is lost.

The disk is made full by a limit on the size of files: the kernel writes as much as fits, and then refuses.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from agent import disk_reserve
from agent import journal as journal_module
from agent.config import AgentConfig
from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerRecord, ContainerState, HeldTask, JobRecord
from agent.daemon import Agent
from agent.disk_reserve import reserve
from agent.journal import Journal
from penstock.daemon import StartError
from penstock.durable import replace_file
from penstock.model import ContainerSpec, EndedBy, KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import Launch
from penstock.wire.errors import ErrorCode, RpcError
from tests.unit.agent.shell.shell_bed import Silent, make_shell


@contextmanager
def full(room_bytes: int = 20) -> Iterator[None]:
    """Files take so many bytes. Nothing is logged meanwhile: the test's own output is a file, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with capture_logs():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


class FakeExecutor(Silent):
    """Notes its instructions."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []
        self.removed: list[str] = []

    def start(self, instruction: i.StartContainer) -> None:
        self.started.append(instruction.container)

    def remove(self, container: str) -> None:
        self.removed.append(container)


class Bed:
    """A shell on a journal of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.executor = FakeExecutor()
        self.shell = make_shell(Journal(directory), self.executor, has_master=True)
        self.node = self.shell.node

    def place(self) -> None:
        """The master places a command here."""
        command = ContainerSpec(argv=("x",), memory_bytes=1 << 20)
        request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20, command=command)
        placed = api.Assign(job="o-1", stage="s", user="u", origin="o", priority=0.0, request=request)
        self.shell.dispatch(e.Decided(1, [placed], 0.0))

    def running(self) -> str:
        container = self.shell.dispatch(
            e.Requested(m.LAUNCH, 1, Launch(container=ContainerSpec(argv=("x",), detach=True)))
        )
        assert isinstance(container, str)
        self.shell.dispatch(e.ContainerStarted(container, 7, {}, 1e9))
        return container

    def exits(self, container: str) -> None:
        self.shell.dispatch(e.ContainerExited(container, 3, None, 0.0, 0, 0, 1e9))

    def on_disk(self) -> list[ContainerRecord]:
        return Journal(self.directory).read("containers", ContainerRecord)


@pytest.fixture
async def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


@pytest.mark.parametrize("room_bytes", [0, 1, 20])
def test_the_record_before_stays_whole(tmp_path: Path, room_bytes: int) -> None:
    journal = Journal(tmp_path)
    before = JobRecord(job="j", name="before", user="u")
    assert journal.write("jobs", "j", before)
    after = JobRecord(job="j", name="after", user="u")
    size_bytes = (tmp_path / "log-00000001").stat().st_size
    with full(size_bytes + room_bytes):
        assert not journal.write("jobs", "j", after)
        with pytest.raises(OSError, match="File too large"):
            journal.retry()
    assert Journal(tmp_path).read("jobs", JobRecord) == [before]
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [size_bytes], (
        "a record that did not fit takes no space"
    )
    journal.retry()
    assert Journal(tmp_path).read("jobs", JobRecord) == [after] and not journal.unwritten


def test_a_record_removed_meanwhile_is_not_written_later(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with full():
        journal.write("jobs", "j", JobRecord(job="j", name="n", user="u"))
        assert journal.write("jobs", "j", None)
    journal.retry()
    assert Journal(tmp_path).read("jobs", JobRecord) == []


class SmallDisk:
    """Once it is ``full``, files have the room that was reserved for them before. While it is ``broken``, it takes a
    part of what is written, and refuses the rest.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = self.broken = False
        self.reserved_bytes: dict[int, int] = {}  # by inode
        self._genuine_write, self._genuine_truncate = os.write, os.ftruncate
        monkeypatch.setattr(os, "write", self._write)
        monkeypatch.setattr(os, "ftruncate", self._truncate)
        monkeypatch.setattr(journal_module, "reserve", self._reserve, raising=False)

    def _reserve(self, descriptor: int, begin_bytes: int, more_bytes: int) -> None:
        file = os.fstat(descriptor)
        self._take(file, begin_bytes + more_bytes)
        self.reserved_bytes[file.st_ino] = begin_bytes + more_bytes

    def _write(self, descriptor: int, data: bytes) -> int:
        file = os.fstat(descriptor)
        self._take(file, file.st_size + len(data))
        if self.broken:
            self._genuine_write(descriptor, data[:5])
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._genuine_write(descriptor, data)

    def _truncate(self, descriptor: int, size_bytes: int) -> None:
        self._genuine_truncate(descriptor, size_bytes)
        self.reserved_bytes.pop(os.fstat(descriptor).st_ino, None)

    def _take(self, file: os.stat_result, size_bytes: int) -> None:
        reserved_bytes = self.reserved_bytes.get(file.st_ino, 0) if file.st_size else 0  # another had the inode before
        if self.full and size_bytes > reserved_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_full_disk_takes_the_removal_of_each_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Otherwise the next agent takes what has ended for something that runs."""
    monkeypatch.setattr(journal_module, "_LEAST_BYTES", 2000)
    disk, journal, room = SmallDisk(monkeypatch), Journal(tmp_path), api.TASKS_CANCELLED.name
    record = api.TasksCancelled(job="j", tasks=[])
    assert all(journal.write(room, str(number), record) for number in range(100))
    disk.full = True
    with capture_logs():
        more = next(number for number in range(100, 1000) if not journal.write(room, str(number), record))
    if restarted:
        journal = Journal(tmp_path)
    assert all(journal.write(room, str(number), None) for number in range(more))
    assert Journal(tmp_path).read(room, api.TasksCancelled) == []
    disk.full = False
    journal.retry()
    assert journal.write(room, "0", record)


@pytest.mark.parametrize("lost_by", ["an entry that is not whole", "an earlier version", "an error of the disk"])
def test_a_reserve_that_is_lost_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost_by: str) -> None:
    disk, journal, room = SmallDisk(monkeypatch), Journal(tmp_path), api.TASKS_CANCELLED.name
    record = api.TasksCancelled(job="j", tasks=[])
    assert all(journal.write(room, str(number), record) for number in range(100))
    with capture_logs():
        if lost_by == "an error of the disk":
            disk.broken = True
            assert not journal.write(room, "more", record)
            disk.broken = False
        else:
            if lost_by == "an earlier version":
                disk.reserved_bytes.clear()
            else:
                with (tmp_path / "log-00000001").open("ab") as file:
                    file.write(b"\0\0")
            journal = Journal(tmp_path)
    disk.full = True
    assert all(journal.write(room, str(number), None) for number in range(100))


def test_what_is_reserved_takes_room_and_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"entry")
    with path.open("ab") as file:
        reserve(file.fileno(), len(b"entry"), 1 << 20)
    assert path.read_bytes() == b"entry"
    if path.stat().st_blocks * 512 < 1 << 20:
        pytest.skip("elsewhere: a file system that reserves room")


@pytest.mark.parametrize(("number", "calls"), [(errno.EINTR, 2), (errno.EOPNOTSUPP, 1)])
def test_a_reservation_is_repeated_only_after_a_signal(
    monkeypatch: pytest.MonkeyPatch, number: int, calls: int
) -> None:
    asked: list[tuple[int, int]] = []

    def fallocate(descriptor: int, mode: int, offset: int, size_bytes: int) -> int:
        asked.append((offset, size_bytes))
        ctypes.set_errno(number)
        return -1 if len(asked) == 1 else 0

    monkeypatch.setattr(disk_reserve, "_libc", SimpleNamespace(fallocate=fallocate))
    reserve(0, 5, 1 << 20)
    assert asked == [(5, 1 << 20)] * calls


def test_a_file_that_cannot_be_replaced_is_named(tmp_path: Path) -> None:
    path = tmp_path / "record"
    replace_file(path, b"a" * 30)
    with full(), pytest.raises(OSError, match="record") as caught:
        replace_file(path, b"b" * 30)
    assert caught.value.filename == str(path)
    assert [one.name for one in tmp_path.iterdir()] == ["record"] and path.read_bytes() == b"a" * 30


async def test_a_launch_is_refused_with_the_remedy_and_starts_nothing(bed: Bed) -> None:
    with full(), pytest.raises(RpcError) as refusal:
        await bed.shell.launch(e.Requested(m.LAUNCH, 1, Launch(container=ContainerSpec(argv=("x",)))))
    assert refusal.value.code is ErrorCode.UNAVAILABLE
    assert str(bed.directory) in refusal.value.body.message and "free space" in refusal.value.body.remedy
    assert not bed.executor.started and not bed.node.containers.live
    await bed.shell.retry_journal()
    assert not bed.executor.started
    assert bed.running() == bed.executor.started[0], "the next launch starts"


async def test_a_placed_command_waits_for_the_disk_and_starts_then(bed: Bed) -> None:
    with full():
        bed.place()
        with pytest.raises(OSError, match="File too large"):
            await bed.shell.retry_journal()
    assert not bed.executor.started
    await bed.shell.retry_journal()
    assert bed.executor.started == list(bed.node.containers.live)
    assert [held.task for held in Journal(bed.directory).read("tasks", HeldTask)] == ["t"]


async def test_a_placed_command_that_is_withdrawn_meanwhile_does_not_start(bed: Bed) -> None:
    with full():
        bed.place()
        bed.shell.dispatch(e.Decided(2, [api.Withdraw(job="o-1", task="t", why="test")], 0.0))
    await bed.shell.retry_journal()
    assert not bed.executor.started and not bed.node.containers.live
    (record,) = bed.node.containers.ended.by_id.values()
    assert record.ended is not None and record.ended.by is EndedBy.CANCELLED


async def test_an_end_is_not_acknowledged_before_it_is_on_the_disk(bed: Bed) -> None:
    """The launcher would report it to the next agent no more, and by the disk the container runs."""
    container = bed.running()
    with full():
        bed.exits(container)
    assert not bed.executor.removed
    assert [record.state for record in bed.on_disk()] == [ContainerState.RUNNING]
    await bed.shell.retry_journal()
    assert bed.executor.removed == [container]
    (record,) = bed.on_disk()
    assert record.ended is not None and record.ended.exit_status == 3


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "make room there, or set another"), (errno.EDQUOT, "make room there, or set another"),
     (errno.EACCES, "set another")],
)  # fmt: skip
def test_an_agent_that_cannot_begin_its_journal_names_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Journal, "start", fail)
    line = f"^state_dir: no journal in {tmp_path}/journal: {os.strerror(number)}; {remedy}$"
    with pytest.raises(StartError, match=line):
        Agent._open_journal(cast(Any, SimpleNamespace()), AgentConfig(state_dir=str(tmp_path)), None)
