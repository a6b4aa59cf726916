"""What a stopped agent has reported of containers, and from where the next one goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import last_report, previous_agent
from agent.core import containers
from agent.core import events as e
from agent.core.records import ContainerRecord, ContainerState
from agent.core.snapshot import ContainerUse, Snapshot
from agent.journal import Journal
from agent.launcher import Running
from agent.shell import Shell
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

    def agent(self, *, linked: bool) -> Shell:
        shell = make_shell(self.journal)
        shell.link = cast("Any", SimpleNamespace(linked=linked, send_heartbeat=lambda: self.receives_from(shell)))
        return shell

    def receives_from(self, shell: Shell) -> None:
        """Let the master receive a heartbeat."""
        self.sent.append(shell.node.heartbeat(1.0))

    def stops(self, used_s: float) -> str:
        """Let an agent with a master stop; return its container."""
        shell = self.agent(linked=True)
        container = str(shell.dispatch(e.Requested(m.LAUNCH, 1, Launch(container=SPEC))))
        shell.dispatch(e.ContainerStarted(container, 7, {}, 1e9))
        used = Snapshot(at=1.0, interval_s=0.0, containers={container: ContainerUse(cpu_seconds=used_s)})
        shell.read_cpu_times = lambda _: shell.dispatch(e.CpuTimesRead(used))
        shell.report_last()
        return container

    def recovered_cpu_s(self, *running: str) -> dict[str, float]:
        runs = [Running(container, 7, "u", 0.0) for container in running]
        return previous_agent.recovered_state(self.journal, runs, frozenset(), None, same_launcher=True).cpu_s


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_what_a_stopped_agent_has_reported_is_known_until_the_next_one_has_reported_more(host: Host) -> None:
    container = host.stops(3.0)
    assert len(host.sent) == 1
    for _ in range(2):  # the first one may end before it has reported anything
        assert host.recovered_cpu_s(container) == {container: 3.0}
    last_report.remove(host.journal)
    assert host.recovered_cpu_s(container) == {}, "nothing can be read here"


def test_the_last_heartbeat_has_every_job(host: Host) -> None:
    shell = host.agent(linked=True)
    job = cast("JobRegistered", shell.dispatch(e.JobRegistered(1, RegisterJob(name="j"), 1e9))).job
    for _ in range(2):
        host.receives_from(shell)
    shell.report_last()
    assert [[use.job for use in sent.load.jobs] for sent in host.sent] == [[job], [], [job]]


def test_without_a_master_nothing_is_reported(host: Host) -> None:
    shell = host.agent(linked=False)
    shell.report_last()
    assert (host.sent, host.recovered_cpu_s()) == ([], {})
    assert last_report.read(host.journal) is None


def test_an_agent_that_had_no_master_leaves_what_the_one_before_has_reported(host: Host) -> None:
    container = host.stops(3.0)
    host.now += 0.9 * last_report.VALID_S
    host.agent(linked=False).report_last()
    host.now += 0.9 * last_report.VALID_S
    assert host.recovered_cpu_s(container) == {container: 3.0}


def test_a_report_from_before_an_earlier_version_ran_is_no_longer_valid(host: Host) -> None:
    """That version has reported more, and leaves the record."""
    container = host.stops(3.0)
    host.now += 1.1 * last_report.VALID_S
    assert host.recovered_cpu_s(container) == {}
    host.agent(linked=False).report_last()
    assert host.recovered_cpu_s(container) == {}, "nor is it left to the next one"


def test_of_a_container_that_began_after_the_report_only_what_it_used_for_jobs_that_are_over_was_reported(
    host: Host,
) -> None:
    container = host.stops(3.0)
    later = ContainerRecord(container="c-9", user="u", spec=SPEC, opportunistic=False, state=ContainerState.RUNNING)
    later.end_turn("over", 2.0)
    host.journal.write(containers.ROOM, "c-9", later)
    assert host.recovered_cpu_s(container, "c-9", "c-10") == {container: 3.0, "c-9": 2.0, "c-10": 0.0}
