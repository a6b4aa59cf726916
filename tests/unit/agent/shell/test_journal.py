"""The journal: what was written is read; what was half written or garbled is never guessed at."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.core.records import ContainerRecord, JobRecord
from agent.journal import Journal
from penstock.model import ContainerSpec, EndedBy, Limits


def test_records_survive_and_removed_ones_do_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    job = JobRecord(job="n-1", name="../../etc/passwd", user="u", admitted=True)
    spec = ContainerSpec(argv=("true",), limits=Limits(cpu_cores=0.5))
    container = ContainerRecord(container="c-1", user="u", spec=spec, opportunistic=True, stopping_by=EndedBy.OOM)
    journal.write("jobs", "../../n-1", job)
    journal.write("containers", "c-1", container)
    journal.write("containers", "c-2", container)
    journal.write("containers", "c-2", None)
    journal.write("containers", "c-3", None)
    again = Journal(tmp_path)
    assert again.read("jobs", JobRecord) == [job]
    assert again.read("containers", ContainerRecord) == [container]
    assert not (tmp_path.parent / "n-1").exists()


def test_a_half_written_record_gives_way_to_the_one_before(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("jobs", "j", JobRecord(job="j", name="before", user="u"))
    (path,) = (tmp_path / "jobs").iterdir()
    path.with_suffix(".new").write_bytes(b"\x87half")
    assert [record.name for record in Journal(tmp_path).read("jobs", JobRecord)] == ["before"]
    assert [p.name for p in (tmp_path / "jobs").iterdir()] == [path.name]


def test_an_unreadable_record_is_set_aside(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("jobs", "j", JobRecord(job="j", name="good", user="u"))
    (tmp_path / "jobs" / ("0" * 40)).write_bytes(b"\xc1\xc1")
    assert [record.name for record in journal.read("jobs", JobRecord)] == ["good"]
    assert (tmp_path / "jobs" / f"{'0' * 40}.bad").exists()
    assert len(journal.read("jobs", JobRecord)) == 1


def test_what_is_not_a_record_is_left_alone_and_named(tmp_path: Path) -> None:
    """As somebody's backup."""
    journal = Journal(tmp_path)
    job = JobRecord(job="j", name="good", user="u")
    journal.write("jobs", "j", job)
    (record,) = (tmp_path / "jobs").iterdir()
    others = [tmp_path / "jobs" / name for name in ("backup", "a" * 40, f"{'b' * 40}.new", f"{'c' * 40}.bad")]
    for other in others:
        other.mkdir()
        (other / "file").write_text("kept")
    copy = tmp_path / "jobs" / "copy-of-a-record"
    copy.write_bytes(record.read_bytes())
    with capture_logs() as logs:
        assert journal.read("jobs", JobRecord) == [job]
    assert copy.exists() and all((other / "file").exists() for other in others)
    assert {str(other) for other in (*others[:3], copy)} == {log["path"] for log in logs}


def test_a_record_that_the_disk_does_not_give_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.write("jobs", "j", JobRecord(job="j", name="n", user="u"))

    def refuses(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", refuses)
    assert journal.read("jobs", JobRecord) == []
    assert [path.suffix for path in (tmp_path / "jobs").iterdir()] == [".bad"]
