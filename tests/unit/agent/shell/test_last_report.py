"""What a stopped agent has counted, and from where the next one goes on."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agent import last_report, previous_agent, process
from agent.core import containers
from agent.core import events as e
from agent.core.attained_service import ROOM, LastCount
from agent.core.records import ContainerRecord, ContainerState
from agent.core.snapshot import ContainerUse, Snapshot
from agent.journal import Journal
from agent.launcher import Running
from agent.shell import Shell
from penstock.locking import claim
from penstock.model import ContainerSpec
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import JobRegistered, Launch, RegisterJob
from penstock.wire.master_api import Heartbeat
from tests.unit.agent.shell.shell_bed import make_shell

SPEC = ContainerSpec(argv=("x",))


class Host:
    """A journal, and a clock that agents read."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.journal = Journal(directory)
        self.now = 1e9
        self.sent: list[Heartbeat] = []
        monkeypatch.setattr(last_report.time, "time", lambda: self.now)

    def agent(self, *, linked: bool = True) -> Shell:
        shell = make_shell(self.journal)
        sends = self.receives_from if linked else lambda _: None
        shell.link = cast("Any", SimpleNamespace(send_heartbeat=lambda: sends(shell)))
        return shell

    def receives_from(self, shell: Shell) -> None:
        """Let the master receive a heartbeat."""
        self.sent.append(shell.node.heartbeat(time.monotonic()))

    def stops(self, used_s: float, *, linked: bool = True) -> tuple[str, str]:
        """Let an agent stop; return its job, and the container of a process that has registered the job."""
        shell = self.agent(linked=linked)
        container = str(shell.dispatch(e.Requested(m.LAUNCH, 1, Launch(container=SPEC))))
        shell.dispatch(e.ContainerStarted(container, 7, {}, 1e9))
        shell.dispatch(e.SessionOpened(2, "u", "test", container=container))
        job = cast("JobRegistered", shell.dispatch(e.JobRegistered(2, RegisterJob(name="j"), 1e9))).job
        used = Snapshot(at=1.0, interval_s=0.0, containers={container: ContainerUse(cpu_seconds=used_s)})
        shell.read_cpu_times = lambda _: shell.dispatch(e.CpuTimesRead(used))
        shell.report_last()
        return job, container

    def recovered(self, *running: str) -> e.Recovered:
        runs = [Running(container, 7, "u", 0.0) for container in running]
        return previous_agent.recovered_state(self.journal, runs, frozenset(), None, same_launcher=True)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


@pytest.mark.parametrize("linked", [True, False], ids=["with a master", "whose master is away"])
async def test_what_a_stopped_agent_has_counted_is_known_until_the_next_one_reports(
    host: Host, *, linked: bool
) -> None:
    job, container = host.stops(3.0, linked=linked)
    assert len(host.sent) == linked
    for _ in range(2):  # the first one may end before it has reported anything
        last_report.take_over(host.journal, host.now - 1.0)
        recovered = host.recovered(container)
        assert (recovered.cpu_s, recovered.service_s) == ({container: 3.0}, {job: 3.0})
    last_report.remove(host.journal)
    recovered = host.recovered(container)
    assert (recovered.cpu_s, recovered.service_s) == ({}, {}), "nothing can be read here"


def test_the_last_heartbeat_has_every_job(host: Host) -> None:
    shell = host.agent()
    job = cast("JobRegistered", shell.dispatch(e.JobRegistered(1, RegisterJob(name="j"), 1e9))).job
    for _ in range(2):
        host.receives_from(shell)
    shell.report_last()
    assert [[use.job for use in sent.load.jobs] for sent in host.sent] == [[job], [], [job]]


def test_an_agent_without_a_master_records_nothing(host: Host) -> None:
    shell = host.agent()
    shell.link = None
    shell.report_last()
    shell.record_service()
    assert last_report.read(host.journal) is None


async def test_a_count_from_before_an_earlier_version_ran_is_dropped(host: Host) -> None:
    """That version does not know the record, and may have reported more."""
    _, container = host.stops(3.0)
    last_report.take_over(host.journal, host.now + 1.0)
    assert host.recovered(container).service_s == {}


async def test_agents_that_know_the_record_keep_it_however_late_they_start(host: Host) -> None:
    job, container = host.stops(3.0)
    for _ in range(2):
        before_at = host.now = host.now + 1e6
        last_report.take_over(host.journal, before_at - 1e6)
    assert host.recovered(container).service_s == {job: 3.0}


def test_the_lock_of_the_state_directory_tells_when_the_agent_before_started(tmp_path: Path) -> None:
    def locks() -> float | None:
        return process.lock(tmp_path, tmp_path, tmp_path / "agent.sock")

    assert locks() is None
    lock = tmp_path / "agent.lock"
    lock.rename(tmp_path / "held")  # by this process
    (tmp_path / "agent-runtime.lock").unlink()
    (tmp_path / "agent.sock.lock").unlink()
    lock.write_text("7\n")
    os.utime(lock, (1e9, 1e9))
    assert locks() == 1e9
    assert lock.stat().st_mtime > 1e9, "the next agent finds when this one started"


def test_a_start_that_fails_at_another_lock_leaves_the_date_of_the_state_directory(tmp_path: Path) -> None:
    state, runtime = tmp_path / "state", tmp_path / "run"
    state.mkdir()
    runtime.mkdir()
    lock = state / "agent.lock"
    lock.write_text("7\n")
    os.utime(lock, (1e9, 1e9))
    held = claim(runtime / "agent-runtime.lock", "taken")
    with pytest.raises(OSError, match="runtime_dir"):
        process.lock(state, runtime, runtime / "agent.sock")
    assert lock.stat().st_mtime == 1e9
    os.close(held)


def test_an_earlier_version_reads_the_cpu_times_of_the_record_and_this_one_reads_its_record(host: Host) -> None:
    class Earlier(msgspec.Struct, kw_only=True):
        at: float
        cpu_s: dict[str, float]

    count = LastCount(at=1.0, cpu_s={"c": 2.0}, service_s={"j": 3.0}, ended_s={"k": 4.0})
    earlier = msgspec.msgpack.decode(msgspec.msgpack.encode(count), type=Earlier)
    assert (earlier.at, earlier.cpu_s) == (1.0, {"c": 2.0})
    host.journal.write(ROOM, ROOM, earlier)
    assert last_report.read(host.journal) == LastCount(at=1.0, cpu_s={"c": 2.0})


async def test_of_a_container_that_began_after_the_count_only_what_it_used_for_jobs_that_are_over_was_counted(
    host: Host,
) -> None:
    _, container = host.stops(3.0)
    later = ContainerRecord(container="c-9", user="u", spec=SPEC, opportunistic=False, state=ContainerState.RUNNING)
    later.end_turn("over", 2.0)
    host.journal.write(containers.ROOM, "c-9", later)
    assert host.recovered(container, "c-9", "c-10").cpu_s == {container: 3.0, "c-9": 2.0, "c-10": 0.0}
