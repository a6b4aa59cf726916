"""The workers of a cluster agree on one job, through nothing but the scheduler's metadata, early or late."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

pytest.importorskip("distributed")

from penstock.client.errors import JobCancelled
from penstock.engines.dask import jobs
from penstock.engines.dask.annotated_tasks import GRANT_OWNER, GrantOwner
from penstock.engines.dask.jobs import ClusterGate
from penstock.engines.dask.settings import Settings
from tests.unit.penstock.engines.dask.dask_bed import until

SETTINGS = Settings(socket="/run/agent.sock", patience_s=0.01)


class FakeScheduler:
    """Metadata as the scheduler keeps it, and the present workers."""

    address = "tcp://127.0.0.1:8786"

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.error: Exception | None = None
        self.alive: set[str] = set()
        self.looks = 0

    async def set_metadata(self, keys: list[str], value: str) -> None:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        inner = self.metadata
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value

    async def get_metadata(self, keys: list[str]) -> Any:
        await asyncio.sleep(0)
        self.looks += 1
        inner = self.metadata
        for key in keys:
            inner = inner[key]
        return dict(inner)

    async def ncores(self, workers: list[str]) -> dict[str, int]:
        await asyncio.sleep(0)
        return {address: 1 for address in workers if address in self.alive}


class FakeWorker:
    def __init__(self, scheduler: FakeScheduler, address: str) -> None:
        self.scheduler = scheduler
        self.address = address
        scheduler.alive.add(address)


class FakeAgent:
    """Jobs that live as long as a client has them."""

    def __init__(self) -> None:
        self.gates: list[FakeGate] = []
        self.made = 0
        self.away = False
        self.slow_joins = 0  # so many gates that join a job are closed before the agent answers
        self.lent: list[str] = []  # the jobs for which processes were lent
        self.left: list[tuple[str, str]] = []  # jobs that were left in order, and where their work goes on

    @property
    def jobs(self) -> set[str]:
        return {gate.job for gate in self.gates if not gate.closed and gate.job}

    def forget(self) -> None:
        """As one that is restarted without its journal: each connection registers its job anew."""
        for gate in self.gates:
            if not gate.closed:
                gate.register()


class FakeGate:
    def __init__(self, agent: FakeAgent, job: str) -> None:
        self.agent = agent
        self.closed = False
        self.busy = 0
        self.asked: list[str] = []
        self.id = job
        self.refused = False
        self.answer: asyncio.Future[None] | None = None  # what requests wait for
        if not job:
            self.register()
        elif agent.slow_joins:
            agent.slow_joins -= 1
            self.closed = True
        elif job in agent.jobs:
            agent.gates.append(self)
        else:
            self.closed = self.refused = True

    def register(self) -> None:
        self.agent.made += 1
        self.id = f"job-{self.agent.made}"
        if self not in self.agent.gates:
            self.agent.gates.append(self)

    @property
    def job(self) -> str:
        return "" if self.agent.away or self.closed else self.id

    def wait_connected(self, timeout_s: float) -> bool:
        return bool(self.job)

    def counts(self) -> dict[str, int]:
        return {"waiting": 0, "held": self.busy}

    def submit(self, kind: str, input_bytes: int, granted: Any, *, stage: str = "", task: str = "") -> str:
        self.asked.append(task)
        return self.job

    def acquire(self, kind: str, input_bytes: int, *, stage: str = "", task: str = "") -> str:
        return self.submit(kind, input_bytes, None, stage=stage, task=task)

    async def acquire_async(self, kind: str, input_bytes: int, *, stage: str = "", task: str = "") -> str:
        if self.answer is not None:
            await self.answer
        return self.submit(kind, input_bytes, None, stage=stage, task=task)

    def close(self, *, done: bool | None = None, merged_into: str = "") -> None:
        if done and not self.closed:
            self.agent.left.append((self.id, merged_into))
        self.closed = True

    def lend(self) -> None:
        self.agent.lent.append(self.job)

    def wait_closed(self, timeout_s: float) -> bool:
        return self.closed


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    fake = FakeAgent()
    monkeypatch.setattr(jobs, "new_gate", lambda worker, settings, job="": FakeGate(fake, job))
    monkeypatch.setattr(jobs, "LOOK_S", 0.001)
    return fake


class Nannied:
    """A worker, as far as its gate is made for it."""

    def __init__(self, nanny: str | None) -> None:
        self.nanny = nanny
        self.scheduler = FakeScheduler()


@pytest.mark.parametrize(
    ("settings", "guest", "ranked"),
    [
        (Settings(), False, False),
        (Settings(share_job=False), False, True),
        (Settings(share_job=False, rank=False), False, False),
        (Settings(share_job=False), True, False),
    ],
)
async def test_a_gate_that_shares_no_job_lends_the_process_at_once(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, guest: bool, ranked: bool
) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(jobs, "Gate", lambda name, **options: made.append(options))
    jobs.new_gate(Nannied(None), settings, guest=guest)  # type: ignore[arg-type]
    assert [(options["rank"], options["process"]) for options in made] == [(ranked, 0)]


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("report.py", "report.py"),
        ("company.report", "company.report"),
        ("", "dask tcp://scheduler"),
        ("dask", "dask tcp://scheduler"),
        ("dask-worker", "dask tcp://scheduler"),
        ("distributed.cli.dask_worker", "dask tcp://scheduler"),
    ],
)
async def test_a_clusters_job_has_the_name_of_its_program_unless_the_user_names_it(
    monkeypatch: pytest.MonkeyPatch, program: str, name: str
) -> None:
    names: list[str] = []
    monkeypatch.setattr(jobs, "Gate", lambda name, **_: names.append(name))
    monkeypatch.setattr(jobs, "program_name", lambda process: program)
    worker = Nannied(None)
    monkeypatch.setattr(worker.scheduler, "address", "tcp://scheduler", raising=False)
    jobs.new_gate(worker, Settings())  # type: ignore[arg-type]
    jobs.new_gate(worker, Settings(job="mine"))  # type: ignore[arg-type]
    assert names == [name, "mine"]


def test_the_process_of_a_worker_is_its_nannys(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a LocalCluster that is the client's and the scheduler's, too; never a shell's."""
    assert jobs.process_of(Nannied("tcp://n")) == 0, "this process was not started as a worker"  # type: ignore[arg-type]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(_process_of, "tcp://n").result() == os.getpid()
        assert pool.submit(_process_of, None).result() == 0


def _process_of(nanny: str | None) -> int:
    return jobs.process_of(Nannied(nanny))  # type: ignore[arg-type]


Start = Callable[..., Any]


@pytest.fixture
def scheduler() -> FakeScheduler:
    return FakeScheduler()


@pytest.fixture
async def gate_of(agent: FakeAgent) -> AsyncIterator[Start]:
    made: list[ClusterGate] = []

    async def start(scheduler: FakeScheduler, address: str, settings: Settings = SETTINGS) -> ClusterGate:
        gate = ClusterGate(FakeWorker(scheduler, address), settings)  # type: ignore[arg-type]
        made.append(gate)
        await gate.start()
        return gate

    yield start
    for gate in made:
        gate.close()
    await asyncio.sleep(0)


async def test_workers_that_start_at_once_agree(agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler) -> None:
    gates = await asyncio.gather(*(gate_of(scheduler, f"tcp://w{n}") for n in range(8)))
    [job] = {gate.job for gate in gates}
    assert agent.jobs == {job}
    assert len(agent.left) == 7
    assert {merged_into for _, merged_into in agent.left} == {job}, "the cluster is listed as one job"
    for gate in gates:
        gate.close()
    assert agent.left[7:] == [(job, "")] * 8, "the cluster's job is done once the last worker has closed"
    assert [gate.speaks for gate in gates].count(True) == 1


async def test_processes_are_lent_for_the_agreed_job_only(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler
) -> None:
    gates = await asyncio.gather(*(gate_of(scheduler, f"tcp://w{n}") for n in range(8)))
    assert set(agent.lent) == {gates[0].job}
    await gate_of(FakeScheduler(), "tcp://w9", Settings(patience_s=0.01, rank=False))
    assert set(agent.lent) == {gates[0].job}, "a cluster without ranks lends nothing"


async def test_a_process_is_lent_once_the_scheduler_has_answered(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler
) -> None:
    scheduler.error = OSError("nobody there")
    gate = await gate_of(scheduler, "tcp://w0")
    assert not agent.lent
    scheduler.error = None
    await until(lambda: agent.lent)
    assert set(agent.lent) == {gate.job}


async def test_a_worker_that_comes_later_joins(gate_of: Start, scheduler: FakeScheduler) -> None:
    first = await gate_of(scheduler, "tcp://w0")
    second = await gate_of(scheduler, "tcp://w1")
    assert second.job == first.job
    assert (first.speaks, second.speaks) == (True, False)


async def test_a_job_that_is_over_is_not_joined(gate_of: Start, scheduler: FakeScheduler) -> None:
    first = await gate_of(scheduler, "tcp://w0")
    over = first.job
    first.close()
    second = await gate_of(scheduler, "tcp://w1")
    assert second.job not in {"", over}
    assert (await gate_of(scheduler, "tcp://w2")).job == second.job


async def test_a_job_that_the_agent_was_too_slow_to_join_is_joined_later(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler
) -> None:
    first = await gate_of(scheduler, "tcp://w0")
    agent.slow_joins = 2
    second = await gate_of(scheduler, "tcp://w1")
    assert second.job not in {"", first.job}
    await until(lambda: second.job == first.job)
    assert agent.jobs == {first.job}


async def test_a_job_that_the_agent_refuses_is_asked_for_once(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    (await gate_of(scheduler, "tcp://w0")).close()
    asked: list[str] = []
    monkeypatch.setattr(jobs, "new_gate", lambda worker, settings, job="": asked.append(job) or FakeGate(agent, job))
    await gate_of(scheduler, "tcp://w1")
    looks = scheduler.looks
    await until(lambda: scheduler.looks > looks + 5)
    assert asked == ["", "job-1"]


async def test_clusters_and_agents_do_not_mix(gate_of: Start, scheduler: FakeScheduler) -> None:
    gates = [
        await gate_of(scheduler, "tcp://w0"),
        await gate_of(FakeScheduler(), "tcp://w1"),
        await gate_of(scheduler, "tcp://w2", Settings(socket="/run/another.sock", patience_s=0.01)),
    ]
    assert len({gate.job for gate in gates}) == 3


async def test_a_worker_that_does_not_share_does_not_ask(gate_of: Start, scheduler: FakeScheduler) -> None:
    assert (await gate_of(scheduler, "tcp://w0", Settings(share_job=False))).job
    assert scheduler.metadata == {}


async def test_a_worker_that_started_while_the_agent_was_slow_joins_once_it_answers(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler
) -> None:
    agent.away = True
    gates = [await gate_of(scheduler, f"tcp://w{n}") for n in range(3)]
    assert scheduler.metadata == {}  # no worker had a job to offer
    agent.away = False
    await until(lambda: len(agent.jobs) == 1 and len({gate.job for gate in gates}) == 1)
    await until(lambda: [gate.speaks for gate in gates].count(True) == 1)


async def test_a_scheduler_that_does_not_answer_is_asked_again(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler
) -> None:
    first = await gate_of(scheduler, "tcp://w0")
    scheduler.error = OSError("nobody there")
    second = await gate_of(scheduler, "tcp://w1")
    assert second.job not in {"", first.job}
    scheduler.error = None
    await until(lambda: second.job == first.job)


async def test_when_the_agent_dropped_the_job_the_workers_agree_on_another(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler
) -> None:
    gates = [await gate_of(scheduler, f"tcp://w{n}") for n in range(4)]
    before = gates[0].job
    agent.forget()
    assert len({gate.job for gate in gates}) == 4
    await until(lambda: len({gate.job for gate in gates}) == 1 and len(agent.jobs) == 1)
    assert before not in agent.jobs


async def test_workers_that_agree_before_the_first_one_has_another_job_join_it_later(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler
) -> None:
    behind = FakeScheduler()  # the same one, as the first worker reaches it
    behind.metadata = scheduler.metadata
    gates = [await gate_of(behind if n == 0 else scheduler, f"tcp://w{n}") for n in range(3)]
    behind.error = OSError("nobody there")
    agent.forget()
    await until(lambda: gates[1].job == gates[2].job != "")
    assert gates[0].job != gates[1].job
    behind.error = None
    await until(lambda: len({gate.job for gate in gates}) == 1)


async def test_a_job_is_left_only_when_its_last_slot_is_given_back(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler
) -> None:
    first = await gate_of(scheduler, "tcp://w0")
    scheduler.error = OSError("nobody there")
    second = await gate_of(scheduler, "tcp://w1")
    held = agent.gates[-1]
    held.busy = 1
    scheduler.error = None
    await until(lambda: second.job == first.job)
    assert not held.closed
    held.busy = 0
    await until(lambda: held.closed)


@pytest.mark.parametrize("joins_before", [False, True])
async def test_the_cancellation_of_a_job_that_is_left_does_not_concern_the_one_that_is_joined(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler, joins_before: bool
) -> None:
    first = await gate_of(scheduler, "tcp://w0")
    scheduler.error = OSError("nobody there")
    second = await gate_of(scheduler, "tcp://w1")
    own = agent.gates[-1]
    own.busy, own.answer = 1, asyncio.get_running_loop().create_future()
    asking = asyncio.create_task(second.acquire_async("network", 1))
    await asyncio.sleep(0)
    if joins_before:
        scheduler.error = None
        await until(lambda: second.job == first.job)
    cancelled = JobCancelled("dask", "ann")
    own.answer.set_exception(cancelled)
    with pytest.raises(JobCancelled):
        await asking
    assert second.cancelled is (None if joins_before else cancelled)
    scheduler.error = None
    await until(lambda: second.job == first.job)
    assert second.cancelled is None


async def test_when_the_speaker_for_the_job_is_gone_the_next_one_takes_over(
    agent: FakeAgent, gate_of: Start, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "HEIR_S", 0.0)
    gates = [await gate_of(scheduler, f"tcp://w{n}") for n in range(3)]
    await until(lambda: not agent.away)
    assert [gate.speaks for gate in gates] == [True, False, False]
    scheduler.alive.remove("tcp://w0")
    gates[0].close()
    await until(lambda: gates[1].speaks)
    assert not gates[2].speaks


async def test_another_worker_of_the_process_speaks_when_the_first_has_left(
    gate_of: Start, scheduler: FakeScheduler
) -> None:
    gate = await gate_of(scheduler, "tcp://w0")
    [first] = gate.workers
    second = FakeWorker(scheduler, "tcp://w1")
    gate.workers.append(second)
    assert gate.leave(first)
    [place] = scheduler.metadata["penstock"].values()
    await until(lambda: place.get("tcp://w1") == gate.job)
    assert not gate.leave(second)


async def test_a_task_of_another_job_is_requested_in_its_name(agent: FakeAgent, gate_of: Start) -> None:
    gate = await gate_of(FakeScheduler(), "tcp://w0")
    other = FakeGate(agent, "")
    assert gate.submit("cpu", 0, lambda _: None) == gate.job
    token = GRANT_OWNER.set(GrantOwner(other, other.job, "stage/3"))  # type: ignore[arg-type]
    try:
        assert gate.submit("cpu", 0, lambda _: None) == other.job
        assert gate.acquire("cpu", 0) == other.job
        assert await gate.acquire_async("network", 0) == other.job
        assert other.asked == ["stage/3"] * 3
        other.close()
        assert gate.submit("cpu", 0, lambda _: None) == gate.job
    finally:
        GRANT_OWNER.reset(token)
