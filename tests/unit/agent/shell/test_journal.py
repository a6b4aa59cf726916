"""The journal: written records are read; half-written or garbled ones are never guessed at."""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from agent import journal as module
from agent.core.records import ContainerRecord, JobRecord
from agent.journal import Journal
from agent.thread_timer import ThreadTimer
from penstock.model import ContainerSpec, EndedBy, Limits


def job(name: str) -> JobRecord:
    return JobRecord(job="j", name=name, user="u")


def names(journal: Journal) -> list[str]:
    return [record.name for record in journal.read("jobs", JobRecord)]


def failing(number: int) -> Callable[..., Any]:
    """Return a function that fails in place of a call to the kernel."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def log_of(directory: Path) -> Path:
    (path,) = directory.glob("log-????????")
    return path


def taken_bytes(directory: Path) -> int:
    """Return the room that the files in a directory take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in directory.iterdir())


def test_records_survive_and_removed_ones_do_not(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    journal = Journal(directory)
    kept = JobRecord(job="n-1", name="../../etc/passwd", user="u", admitted=True)
    spec = ContainerSpec(argv=("true",), limits=Limits(cpu_cores=0.5))
    container = ContainerRecord(container="c-1", user="u", spec=spec, opportunistic=True, stopping_by=EndedBy.OOM)
    journal.write("jobs", "../../n-1", kept)
    journal.write("containers", "c-1", container)
    journal.write("containers", "c-2", container)
    journal.write("containers", "c-2", None)
    journal.write("containers", "c-3", None)
    again = Journal(directory)
    assert again.read("jobs", JobRecord) == [kept]
    assert again.read("containers", ContainerRecord) == [container]
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
    assert log_of(directory).stat().st_mode & 0o777 == 0o600


@settings(max_examples=25)
@given(
    changes=st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.text(max_size=40)), max_size=12), cut=st.data()
)
def test_a_log_that_was_cut_off_anywhere_has_the_changes_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str | None]], cut: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    journal = Journal(directory)
    path = log_of(directory)
    states, known = [(path.stat().st_size, [])], dict[str, str]()
    for key, name in changes:
        journal.write("jobs", key, None if name is None else job(name))
        if known.get(key) != name:  # a record that the log has already is not written again, and keeps its place
            known.pop(key, None)
            if name is not None:
                known[key] = name
        states.append((path.stat().st_size, list(known.values())))
    size = cut.draw(st.integers(states[0][0], states[-1][0]))
    os.truncate(path, size)
    with capture_logs():
        again = Journal(directory)
    assert names(again) == [found for end, found in states if end <= size][-1]
    again.write("jobs", "d", job("later"))
    assert names(Journal(directory)) == names(again), "the records after the cut are whole"


def test_a_garbled_record_ends_the_log_and_is_set_aside(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("jobs", "a", job("before"))
    good = log_of(tmp_path).read_bytes()
    journal.write("jobs", "b", job("garbled"))
    tail = bytearray(log_of(tmp_path).read_bytes()[len(good) :])
    tail[-1] ^= 1
    log_of(tmp_path).write_bytes(good + tail)
    with capture_logs() as logs:
        assert names(Journal(tmp_path)) == ["before"]
    assert [log["bytes"] for log in logs] == [len(tail)]
    assert (tmp_path / "log-00000001.bad").read_bytes() == tail
    assert names(Journal(tmp_path)) == ["before"]


def test_a_record_of_another_shape_is_set_aside(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("jobs", "a", Limits(cpu_cores=0.5))
    journal.write("jobs", "b", job("good"))
    with capture_logs() as logs:
        assert names(Journal(tmp_path)) == ["good"]
    assert logs[0]["room"] == "jobs"
    assert len(list(tmp_path.glob("jobs-*.bad"))) == 1


def test_a_log_that_the_disk_does_not_give_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(tmp_path).write("jobs", "a", job("n"))
    monkeypatch.setattr(Path, "read_bytes", failing(errno.EIO))
    with capture_logs() as logs:
        journal = Journal(tmp_path)
    assert names(journal) == [] and len(logs) == 1
    assert (tmp_path / "log-00000001.bad").exists()
    assert journal.write("jobs", "a", job("goes on"))


def test_others_files_are_left_alone(tmp_path: Path) -> None:
    """An example is a user's backup."""
    Journal(tmp_path).write("jobs", "a", job("good"))
    others = [tmp_path / name for name in ("backup", "log-1", "log-00000002")]
    for other in others:
        other.mkdir()
        (other / "file").write_text("kept")
    assert names(Journal(tmp_path)) == ["good"]
    assert all((other / "file").exists() for other in others)


class TestAnew:
    """A log that has grown begins anew in another file."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_LEAST_BYTES", 2000)

    def grown(self, directory: Path) -> Journal:
        journal = Journal(directory)
        for number in range(200):
            journal.write("jobs", "a", job(f"{number:04}"))
        journal.write("jobs", "b", job("other"))
        return journal

    def test_it_stays_small_and_has_the_latest(self, tmp_path: Path) -> None:
        journal = self.grown(tmp_path)
        assert names(Journal(tmp_path)) == ["0199", "other"]
        journal.sync()
        assert log_of(tmp_path).stat().st_size < 3000, "the old ones went when the new one was on the disk"

    def test_one_that_was_not_begun_completely_gives_way_to_the_one_before(self, tmp_path: Path) -> None:
        """As if the host had crashed before the new one was on the disk."""
        self.grown(tmp_path / "journal")
        *_, before, newest = sorted((tmp_path / "journal").glob("log-*"))
        alone = tmp_path / "alone"
        alone.mkdir()
        (alone / before.name).write_bytes(before.read_bytes())
        os.truncate(newest, 30)
        found = names(Journal(tmp_path / "journal"))
        assert found == names(Journal(alone)) and found[0] > "0100"

    def test_a_disk_that_has_no_room_for_another_keeps_this_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = Journal(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(module, "_begin", failing(errno.ENOSPC))
            for number in range(200):
                assert journal.write("jobs", "a", job(f"{number:04}"))
        assert names(Journal(tmp_path)) == ["0199"]
        assert log_of(tmp_path).stat().st_size > 4000
        journal.write("jobs", "b", job("other"))
        journal.sync()
        assert names(Journal(tmp_path)) == ["0199", "other"]
        assert log_of(tmp_path).stat().st_size < 2000


def test_records_that_the_kernel_could_not_sync_are_written_again_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync(2): after a failure the kernel may have dropped the data, and reports it once."""
    journal = Journal(tmp_path)
    journal.write("jobs", "a", job("kept"))
    before = log_of(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            journal.sync()
    before.write_bytes(b"what is left of it")
    journal.retry()
    journal.sync()
    assert log_of(tmp_path) != before
    assert names(Journal(tmp_path)) == ["kept"]


def test_logs_that_wait_for_a_disk_that_does_not_sync_have_no_room_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.write("jobs", "a", job("kept"))
    if (of_one := taken_bytes(tmp_path)) < 1 << 20:
        pytest.skip("elsewhere: a file system that reserves room")
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO))
    for _ in range(4):
        with pytest.raises(OSError, match="Input/output error"):
            journal.sync()
        journal.retry()
    assert len(list(tmp_path.iterdir())) == 5
    assert taken_bytes(tmp_path) < 2 * of_one
    assert names(Journal(tmp_path)) == ["kept"]


def test_records_behind_an_entry_that_cannot_be_cut_off_go_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes a part of an entry, then refuses everything for a while."""
    journal = Journal(tmp_path)
    journal.write("jobs", "a", job("before"))
    genuine = os.write
    taken: list[int] = []

    def takes_a_part(descriptor: int, data: bytes) -> int:
        if taken:
            raise OSError(errno.EIO, "Input/output error")
        taken.append(genuine(descriptor, bytes(data[:5])))
        return taken[0]

    with monkeypatch.context() as patched, capture_logs():
        patched.setattr(os, "write", takes_a_part)
        patched.setattr(os, "ftruncate", failing(errno.EIO))
        assert not journal.write("jobs", "b", job("refused"))
    journal.write("jobs", "c", job("later"))
    journal.retry()
    assert names(Journal(tmp_path)) == ["before", "later", "refused"]


def test_the_thread_brings_everything_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    reached = threading.Event()
    genuine = os.fdatasync

    def watched(descriptor: int) -> None:
        genuine(descriptor)
        synced.append(os.fstat(descriptor).st_size)
        reached.set()

    monkeypatch.setattr(os, "fdatasync", watched)
    journal = Journal(tmp_path)
    journal.start()
    journal.write("jobs", "a", job("n"))
    assert reached.wait(30), "it happens without a request"
    journal.write("jobs", "a", job("m"))
    journal.close()
    assert synced[-1] == log_of(tmp_path).stat().st_size


def test_changes_that_come_together_are_brought_to_the_disk_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Timer:
        """The journal's; a test lets it expire."""

        def __init__(self) -> None:
            self.starts = 0
            self.expired = threading.Semaphore(0)

        def start(self) -> None:
            self.starts += 1

        def expire(self) -> None:
            self.expired.release()

        def wait(self) -> None:
            assert self.expired.acquire(timeout=30)

        def close(self) -> None:
            pass

    sizes: queue.SimpleQueue[int] = queue.SimpleQueue()
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: sizes.put(os.fstat(descriptor).st_size))
    timer = Timer()
    monkeypatch.setattr(module, "ThreadTimer", lambda delay_s: timer)
    journal = Journal(tmp_path)
    journal.write("jobs", "a", job("n"))
    journal.start()
    journal.write("jobs", "b", job("m"))
    assert timer.starts == 1
    timer.expire()
    assert sizes.get(timeout=30) == log_of(tmp_path).stat().st_size
    journal.write("jobs", "c", job("o"))
    assert timer.starts == 2, "what comes during a sync, or after it, is synced the next time"
    journal.close()
    assert sizes.get(timeout=30) == log_of(tmp_path).stat().st_size


def test_a_thread_waits_for_a_timer_that_another_sets() -> None:
    timer, woken = ThreadTimer(1000.0), threading.Event()

    def wait() -> None:
        timer.wait()
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    timer.start()
    assert not woken.is_set()
    timer.expire()
    assert woken.wait(30)
    thread.join()
    timer.close()


def test_a_timer_waits_for_its_delay() -> None:
    timer = ThreadTimer(0.01)
    for _ in range(2):
        began = time.monotonic()
        timer.start()
        timer.wait()
        assert time.monotonic() - began >= 0.01
    timer.close()


def test_a_record_that_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.write("jobs", "j", job("a"))
    size = log_of(tmp_path).stat().st_size
    assert journal.write("jobs", "j", job("a"))
    assert log_of(tmp_path).stat().st_size == size
    assert journal.write("jobs", "j", job("b"))
    assert journal.write("jobs", "j", job("a"))
    assert names(Journal(tmp_path)) == ["a"]
    journal.write("jobs", "j", None)
    assert journal.write("jobs", "j", job("a"))
    assert names(Journal(tmp_path)) == ["a"]


def test_the_directory_is_synced_where_it_has_another_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []  # of each directory that is synced whether it has two logs
    monkeypatch.setattr(module, "_sync_directory", lambda path: synced.append(len(list(path.glob("log-*"))) == 2))
    journal = Journal(tmp_path)
    for number in range(3):
        journal.write("jobs", "j", job(str(number)))
        journal.sync()
    assert synced == [False]
    journal.write("jobs", "j", job("x" * (2 << 20)))  # several times as large as the records before, so another log
    journal.write("jobs", "j", job("y"))
    journal.sync()
    journal.sync()
    assert synced == [False, True]


def test_a_directory_that_was_not_synced_is_synced_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def refuse(path: Path) -> None:
        synced.append(path)
        if len(synced) == 1:
            raise OSError(errno.EIO, "no")

    monkeypatch.setattr(module, "_sync_directory", refuse)
    journal = Journal(tmp_path)
    with pytest.raises(OSError, match="no"):
        journal.sync()
    journal.sync()
    journal.sync()
    assert synced == [tmp_path, tmp_path]


def test_a_container_is_written_with_the_names_that_earlier_agents_read() -> None:
    record = ContainerRecord(container="c-1", user="u", spec=ContainerSpec(argv=("x",)), opportunistic=False)
    record.lend("j")
    record.resize(Limits(pids_max=7))
    written = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    assert {"job": "j", "profile": None, "promise": None}.items() <= written.items()
    assert written["limits"]["pids_max"] == 7
    assert not [name for name in written if name.startswith("_")]
