"""Cancelled jobs in the journal: the next agent has them, and agents of other releases do no harm to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import journal as module
from agent import previous_agent
from agent.core import cancelled_jobs
from agent.core import events as e
from agent.core.records import CancelledJob, JobRecord
from agent.journal import Journal
from agent.shell import Shell
from penstock.wire import master_api as api
from penstock.wire.agent_api import RegisterJob
from tests.unit.agent.shell.shell_bed import make_shell


def cancel_one(shell: Shell) -> str:
    """Let the client register a job, and the master cancel it; return the job."""
    answer = shell.dispatch(e.JobRegistered(1, RegisterJob(name="j"), 0.0))
    job = str(answer.job)  # type: ignore[attr-defined]
    shell.dispatch(e.Decided(shell.node.decided + 1, [api.CancelJob(job=job, by="ann")], 0.0))
    return job


def found_by_the_next(directory: Path) -> e.Recovered:
    """What the next agent reads from the journal."""
    return previous_agent.recovered_state(Journal(directory), [], frozenset(), None, same_launcher=True)


def test_the_next_agent_has_the_cancelled_jobs_in_their_order(tmp_path: Path) -> None:
    shell = make_shell(Journal(tmp_path), has_master=True)
    jobs = [cancel_one(shell) for _ in range(3)]
    found = found_by_the_next(tmp_path)
    assert found.jobs == []
    assert found.cancelled == [CancelledJob(job=job, user="u", by="ann") for job in jobs]


def test_an_agent_that_dies_while_it_cancels_has_recorded_the_cancellation_first(tmp_path: Path) -> None:
    """If neither record had the job, its client would register it anew."""
    rooms: list[tuple[str, bool]] = []

    class Recording(Journal):
        def add(self, room: str, key: str, value: object | None) -> None:
            rooms.append((room, value is not None))
            super().add(room, key, value)

    cancel_one(make_shell(Recording(tmp_path), has_master=True))
    assert rooms == [("jobs", True), (cancelled_jobs.ROOM, True), ("jobs", False)]


def test_the_journal_of_an_older_agent_has_none(tmp_path: Path) -> None:
    Journal(tmp_path).write("jobs", "j", JobRecord(job="j", name="n", user="u"))
    found = found_by_the_next(tmp_path)
    assert [record.job for record in found.jobs] == ["j"]
    assert found.cancelled == []


def test_an_older_agent_keeps_them_for_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads its own rooms only, and copies all records when it begins a new log."""
    job = cancel_one(make_shell(Journal(tmp_path), has_master=True))
    with monkeypatch.context() as older:
        older.delitem(module._ROOMS, cancelled_jobs.ROOM)
        older.setattr(module, "_LEAST_BYTES", 0)
        journal = Journal(tmp_path)
        assert journal.read("jobs", JobRecord) == []
        for number in range(20):
            journal.write("jobs", "j", JobRecord(job="j", name=str(number), user="u"))
        journal.write("jobs", "j", None)
        journal.close()
    assert not (tmp_path / "log-00000001").exists(), "it began a new log"
    assert found_by_the_next(tmp_path).cancelled == [CancelledJob(job=job, user="u", by="ann")]
