"""The journal: what was written is read; what was half written or garbled is never guessed at."""

from __future__ import annotations

from pathlib import Path

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
    (tmp_path / "jobs" / "0000").write_bytes(b"\xc1\xc1")
    assert [record.name for record in journal.read("jobs", JobRecord)] == ["good"]
    assert (tmp_path / "jobs" / "0000.bad").exists()
    assert len(journal.read("jobs", JobRecord)) == 1
