"""Processes that clients lend for the rank of a job, and those that clients have adopted as their own."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import events as e
from agent.core.instructions import AdoptProcess, GiveBack, Instruction, Renice
from agent.core.rank_weights import nice_of
from agent.core.records import ContainerRecord
from penstock.model import ContainerSpec
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import EndJob, Launched
from penstock.wire.errors import RpcError
from penstock.wire.jobs_api import LeaveJob
from tests.unit.agent.core.ranks_bed import Bed

PID, OTHER_PID = 500, 600


class Lending(Bed):
    """The same; ``last`` has the instructions of the latest event."""

    last: list[Instruction]

    def send(self, event: e.Event) -> Any:
        before = len(self.done)
        answer = super().send(event)
        self.last = self.done[before:]
        return answer

    def lend(self, session: int, job: str, pid: int = PID, *, inside: str = "", **fields: Any) -> str:
        """Until it runs."""
        asked = e.LendRequested(session, job, pid, ("python", "x.py"), own=True, inside=inside, **fields)
        answer = self.send(asked)
        if isinstance(answer, Launched):
            return answer.container
        self.start(answer, pid)
        return str(answer)

    def start(self, container: str, pid: int = PID) -> None:
        self.begin(container, pid)
        self.used_s[container] = 0.0

    def close(self, session: int, merged_into: str | None = None) -> None:
        if merged_into is not None:
            for job in list(self.node.sessions[session].jobs):
                self.send(e.Requested(m.LEAVE_JOB, session, LeaveJob(job=job, merged_into=merged_into)))
        self.send(e.SessionClosed(session))

    def given_back(self) -> list[str]:
        return [one.container for one in self.given(GiveBack)]

    def record(self, container: str) -> ContainerRecord:
        found = self.node.containers.find(container)
        assert found is not None
        return found


@pytest.fixture
def bed() -> Lending:
    return Lending()


def test_a_lent_process_is_a_container_of_its_job_and_ranked_with_it(bed: Lending) -> None:
    first, second = bed.connect(), bed.connect()
    jobs = [bed.register(first), bed.register(second)]
    lent = [bed.lend(first, jobs[0]), bed.lend(second, jobs[1], OTHER_PID)]
    asked = [one for one in bed.done if isinstance(one, AdoptProcess)]
    assert [(one.pid, one.tree, one.borrow) for one in asked] == [(PID, True, True), (OTHER_PID, True, True)]
    assert [bed.node.sessions[session].container for session in (first, second)] == lent
    assert [bed.node.cpu_times.job_of(container) for container in lent] == jobs
    bed.sample()
    assert bed.weights[lent[0]] > 10 * bed.weights[lent[1]]
    assert [bed.nice[container] for container in lent] == [nice_of(0, 2), nice_of(1, 2)]


def test_a_job_that_is_over_gives_its_processes_back(bed: Lending) -> None:
    session = bed.connect()
    job = bed.register(session)
    container = bed.lend(session, job, nice=3)
    bed.close(session)
    assert bed.last[-1] == GiveBack(container, PID, 3)
    assert container in bed.node.containers.live, "it has not been given back yet"
    bed.send(e.GivenBack(container, 1.5, 100, bed.now))
    ended = bed.record(container).ended
    assert ended is not None and ended.ok is not None and ended.cpu_seconds == 1.5
    assert "go on" in ended.reason and not bed.node.containers.live


@pytest.mark.parametrize("how", ["ended", "joined", "merged"])
def test_processes_go_from_one_job_to_the_next(bed: Lending, how: str) -> None:
    """Workers begin in jobs of their own, and join that of their cluster."""
    early, late = bed.connect(), bed.connect()
    own = bed.register(early)
    container = bed.lend(early, own)
    agreed = bed.register(late)
    if how == "joined":  # it lends itself for the other job, and leaves its own
        assert bed.lend(late, agreed, inside=container) == container
    assert bed.record(container).job == own
    if how == "ended":
        bed.close(early)
        assert bed.given_back() == [container]
        return
    bed.close(early, merged_into=agreed if how == "merged" else "")
    assert bed.given_back() == [] and bed.record(container).job == agreed
    bed.sample()
    assert bed.node.cpu_times.job_of(container) == agreed
    bed.close(late)
    assert bed.given_back() == [container]


def test_a_process_lent_again_while_it_is_given_back_is_taken_in_again(bed: Lending) -> None:
    first, second = bed.connect(), bed.connect()
    container = bed.lend(first, bed.register(first))
    job = bed.register(second)
    bed.close(first)
    assert bed.given_back() == [container]
    assert bed.lend(second, job, inside=container) == container
    bed.send(e.GivenBack(container, 0.0, 0, bed.now))
    (adopted,) = (one for one in bed.last if isinstance(one, AdoptProcess))
    bed.start(adopted.container)
    assert (adopted.pid, bed.record(adopted.container).job) == (PID, job)
    bed.close(second)
    assert bed.given_back() == [container, adopted.container]


def test_a_job_that_ends_while_its_process_is_being_taken_in(bed: Lending) -> None:
    session, other = bed.connect(), bed.connect()
    job = bed.register(session)
    container = bed.send(e.LendRequested(session, job, PID, ("x",)))
    again = bed.send(e.LendRequested(session, job, PID, ("x",)))
    assert isinstance(again, Launched) and again.container == container, "one process is one container"
    bed.close(session)
    assert bed.given_back() == []
    bed.start(container)
    assert bed.given_back() == [container]
    assert bed.register(other)


def test_a_process_that_cannot_be_given_back_is_like_any_adopted_container(bed: Lending) -> None:
    session = bed.connect()
    container = bed.lend(session, bed.register(session))
    bed.close(session)
    bed.send(e.GivenBack(container, 0.0, 0, bed.now, "the launcher is gone"))
    bed.sample()
    assert bed.record(container).ended is None and not bed.record(container).job
    assert bed.node.cpu_times.job_of(container) == container, "it is a job of its own"


def test_one_that_could_not_be_taken_in_is_nobodys_container(bed: Lending) -> None:
    session = bed.connect()
    job = bed.register(session)
    container = bed.send(e.LendRequested(session, job, PID, ("x",), own=True))
    bed.send(e.ContainerNotStarted(container, "limits of its own"))
    assert bed.node.sessions[session].container == ""
    bed.close(session)
    assert bed.given_back() == []


def test_a_process_in_a_container_stays_there(bed: Lending) -> None:
    launched = bed.launch()
    session = bed.connect(launched)
    job = bed.register(session)
    assert bed.lend(session, job, inside=launched) == launched
    bed.close(session)
    assert bed.given_back() == [] and launched in bed.node.containers.live


def test_only_ones_own_jobs_and_containers(bed: Lending) -> None:
    launched = bed.launch()
    job = bed.register(bed.eve)
    mallory = next(bed.sessions)
    bed.send(e.SessionOpened(mallory, "mallory", "c"))
    own = bed.register(mallory)
    with pytest.raises(RpcError, match=f"job '{job}' belongs to eve"):
        bed.lend(mallory, job)
    with pytest.raises(RpcError, match=f"process 500 is in container '{launched}' of eve"):
        bed.lend(mallory, own, inside=launched)
    with pytest.raises(RpcError, match="unknown job"):
        bed.lend(mallory, "no-such")
    assert not bed.node.sessions[mallory].container and list(bed.node.containers.live) == [launched]


def test_a_restarted_agent_gives_back_processes_without_a_job(bed: Lending) -> None:
    session = bed.connect()
    jobs = [bed.register(session), bed.register(session)]
    containers = [bed.lend(session, jobs[0]), bed.lend(session, jobs[1], OTHER_PID)]
    records = [bed.record(container) for container in containers]
    anew = Lending()
    running = dict(zip(containers, (PID, OTHER_PID), strict=True))
    anew.send(e.Recovered([bed.node.jobs[jobs[0]].record], [], records, running, frozenset(), 0.0))
    assert anew.given_back() == [containers[1]]
    anew.sample(seconds=1000.0)
    assert anew.given_back() == [containers[1], containers[0]], "no client came back to its job"


def test_an_agent_that_stops_gives_back_processes_that_it_cannot_rank_any_more(bed: Lending) -> None:
    session, launched = bed.connect(), bed.launch()
    job = bed.register(session)
    container = bed.lend(session, job)
    bed.send(e.SessionClosed(session, stopping=True))
    assert bed.given_back() == [container]
    bed.send(e.GivenBack(container, 0.0, 0, bed.now))
    ended = bed.record(container).ended
    assert ended is not None and ended.reason == "the agent stopped: its processes go on"
    assert job in bed.node.jobs and list(bed.node.containers.live) == [launched]


def test_a_client_that_is_adopted_owns_its_container_with_the_jobs_that_it_registers() -> None:
    for registered_first in (True, False):
        bed = Lending()
        session = bed.connect()
        job = bed.register(session) if registered_first else ""
        container = bed.send(e.AdoptRequested(session, ContainerSpec(argv=("x",)), PID, tree=True, own=True))
        bed.start(container)
        job = job or bed.register(session)
        assert bed.node.cpu_times.job_of(container) == job
        again = bed.send(
            e.AdoptRequested(session, ContainerSpec(argv=("x",)), PID, tree=True, own=True, inside=container)
        )
        assert isinstance(again, Launched) and again.container == container
        bed.close(session)
        assert bed.given_back() == [] and bed.record(container).ended is None, "it was not lent"


def test_a_process_that_was_lowered_gets_no_better_nice_value_and_none_that_of_another_container(bed: Lending) -> None:
    first, second = bed.connect(), bed.connect()
    lent = bed.lend(first, bed.register(first))
    other = bed.lend(second, bed.register(second, priority=1.0), OTHER_PID, nice=15)
    bed.sample()
    assert bed.nice == {lent: nice_of(1, 2), other: 15}
    bed.send(e.Requested(m.END_JOB, second, EndJob(job=bed.record(other).job)))
    bed.send(e.GivenBack(other, 0.0, 0, bed.now))
    bed.sample()
    (one,) = (one for one in bed.last if isinstance(one, Renice))
    assert one == Renice(lent, PID, 0, adopted=True)
    bed.lend(first, bed.register(first, priority=2.0), OTHER_PID, nice=15)
    bed.sample()
    renices = {one.container: one for one in bed.done if isinstance(one, Renice)}
    assert renices[lent] == Renice(lent, PID, nice_of(1, 2), adopted=True, apart=frozenset({OTHER_PID}))
