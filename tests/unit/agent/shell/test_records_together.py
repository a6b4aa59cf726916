"""The records of one decision go to the kernel by one write, before all that depends on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerRecord, HeldTask, JobRecord, TaskEnd
from agent.journal import Journal
from penstock.model import ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import EndJob, Place, RegisterJob
from tests.unit.agent.shell.shell_bed import Silent, make_shell
from tests.unit.agent.shell.test_disk_full import full

COMMAND = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("x",)))


def job(name: str) -> JobRecord:
    return JobRecord(job="j", name=name, user="u")


class Bed:
    """A shell, the records that the kernel has when it acts, and the writes to the journal's log."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.journal = Journal(directory)
        self.starts: list[tuple[int, int]] = []  # at each start of a container: how many tasks and containers it has
        self.writes = 0
        executor: Any = Silent()
        executor.start = lambda start: self.starts.append((len(self.of(HeldTask)), len(self.of(ContainerRecord))))
        self.shell = make_shell(self.journal, executor, has_master=True)
        genuine = os.write

        def write(descriptor: int, data: bytes) -> int:
            self.writes += 1
            return genuine(descriptor, data)

        monkeypatch.setattr(os, "write", write)

    def of(self, kind: type[Any]) -> list[Any]:
        rooms = {HeldTask: "tasks", ContainerRecord: "containers", JobRecord: "jobs", TaskEnd: "ends"}
        return Journal(self.directory).read(rooms[kind], kind)

    def register(self) -> str:
        self.shell.dispatch(e.JobRegistered(1, RegisterJob(name="j"), 0.0))
        [name] = self.shell.node.jobs
        return name

    def assign(self) -> None:
        """Let the master place a command of this node's job here."""
        assigned = api.Assign(job=self.register(), stage="s", user="u", origin="n", priority=0.0, request=COMMAND)
        self.writes = 0
        self.shell.dispatch(e.Decided(1, [assigned], 0.0))


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(tmp_path, monkeypatch)


def test_a_placed_command_is_recorded_by_one_write_before_it_starts(bed: Bed) -> None:
    bed.assign()
    assert bed.starts == [(1, 1)]
    assert bed.writes == 1


def test_the_end_of_a_command_is_recorded_by_one_write(bed: Bed) -> None:
    bed.assign()
    [container] = bed.shell.node.containers.live
    bed.shell.dispatch(e.ContainerStarted(container, 7, {}, 1e9))
    bed.writes = 0
    bed.shell.dispatch(e.ContainerExited(container, 3, None, 0.0, 0, 0, 1e9))
    assert bed.writes == 1
    assert all(record.ended for record in [*bed.of(HeldTask), *bed.of(ContainerRecord)])


def test_an_end_that_is_pushed_to_its_framework_is_recorded_before(bed: Bed) -> None:
    recorded: list[int] = []
    framework: Any = Silent()
    framework.push = lambda: recorded.append(len(bed.of(TaskEnd)))
    name = bed.register()
    own = TaskRequest(task="t", usage=KindAmounts(cpu=1.0))
    bed.shell.dispatch(e.Requested(m.PLACE, 1, Place(job=name, stage="s", tasks=[own], opportunistic=False)))
    bed.shell.peers[1] = framework
    ended = api.TellEnded(job=name, task="t", node="other", ended=Ended(by=EndedBy.LOST))
    bed.shell.dispatch(e.Decided(1, [api.TellPlaced(job=name, task="t", node="other"), ended], 0.0))
    assert recorded == [1]
    bed.shell.dispatch(e.Requested(m.END_JOB, 1, EndJob(job=name)))
    assert bed.of(TaskEnd) == bed.of(JobRecord) == []


def test_records_are_written_even_if_an_instruction_fails(bed: Bed) -> None:
    def fail(event: object, now: float) -> list[i.Instruction]:
        return [i.Record("jobs", "j", job("n")), i.Explain("x", {"what": "twice"})]

    bed.shell.node.handle = fail  # type: ignore[method-assign]
    with pytest.raises(TypeError):
        bed.shell.dispatch(e.LauncherLost())
    assert bed.of(JobRecord) == [job("n")]


@pytest.mark.parametrize("room_bytes", [0, 20, 60])
def test_of_changes_that_do_not_fit_together_those_that_fit_are_written(tmp_path: Path, room_bytes: int) -> None:
    journal = Journal(tmp_path)
    for key in ("a", "b"):
        journal.write("jobs", key, job(key))
    journal.add("jobs", "a", None)
    journal.add("jobs", "b", job("x" * 1000))
    removal_bytes = 96
    with full((tmp_path / "log-00000001").stat().st_size + removal_bytes + room_bytes):
        journal.flush()
    assert [each.name for each in Journal(tmp_path).read("jobs", JobRecord)] == ["b"]
    assert list(journal.unwritten) == [("jobs", "b")]
    journal.retry()
    assert [each.name for each in Journal(tmp_path).read("jobs", JobRecord)] == ["x" * 1000]
    assert not journal.unwritten


def test_a_record_that_cannot_be_encoded_takes_no_other_with_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add("jobs", "a", job("a"))
    with pytest.raises(UnicodeEncodeError):
        journal.add("jobs", "b", job("\udc80"))
    journal.add("jobs", "c", job("c"))
    journal.flush()
    assert [each.name for each in Journal(tmp_path).read("jobs", JobRecord)] == ["a", "c"]
