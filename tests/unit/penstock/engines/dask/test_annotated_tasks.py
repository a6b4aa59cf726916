"""Tasks that another job of the agent placed are asked for in that job's name, on real workers behind fake gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")

from penstock.engines.dask import annotated_tasks, jobs  # noqa: E402
from penstock.engines.dask import plugin as plugin_module  # noqa: E402
from penstock.engines.dask.annotated_tasks import annotated_job  # noqa: E402
from tests.unit.penstock.engines.dask.dask_bed import DASK_WARNS, started, until  # noqa: E402

pytestmark = DASK_WARNS


class Gates:
    """The gates that were made: the cluster's by "", those that joined a job by its id."""

    def __init__(self, make_gate: Callable[..., Any]) -> None:
        self.make_gate = make_gate
        self.known = {"job-7"}
        self.made: dict[str, list[Any]] = {}

    def new_gate(self, worker: Any, settings: Any, job: str = "", *, guest: bool = False) -> Any:
        gate = self.make_gate(4, job or "job-1")
        if job and job not in self.known:
            gate.job = ""
            gate.wait_connected = lambda timeout_s: False
        self.made.setdefault(job, []).append(gate)
        return gate


@pytest.fixture
def gates(make_gate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Gates:
    made = Gates(make_gate)
    monkeypatch.setattr(jobs, "new_gate", made.new_gate)
    monkeypatch.setattr(plugin_module, "new_gate", made.new_gate)
    return made


def submit(client: Any, job: str, *arguments: Any, task: str = "s/0", **keywords: Any) -> Any:
    with dask.annotate(penstock={"job": job, "task": task, "stage": "s"}):
        return client.submit(*arguments, **keywords)


async def test_a_task_of_another_job_is_asked_for_in_its_name(gates: Gates) -> None:
    async with started(1) as (client, _):
        assert await submit(client, "job-7", pow, 2, 5) == 32
        assert await client.submit(pow, 2, 6) == 64
        [joined], [ours] = gates.made["job-7"], gates.made[""]
        assert [(slot.stage, slot.task) for slot in joined.asked] == [("s", "s/0")]
        assert [(slot.stage, slot.task) for slot in ours.asked] == [("pow", "")]
    await until(lambda: joined.closed)
    await until(lambda: ours.closed)


async def test_coroutine_tasks_too(gates: Gates) -> None:
    async def coroutine() -> int:
        return 7

    async with started(1) as (client, _):
        assert await submit(client, "job-7", coroutine) == 7
        assert [slot.task for slot in gates.made["job-7"][0].asked] == ["s/0"]


async def test_a_fetch_for_a_task_is_requested_in_its_name(gates: Gates) -> None:
    async with started(2) as (client, workers):
        data = client.submit(bytes, 300_000, workers=[workers[0].address])
        counted = submit(client, "job-7", len, data, task="s/4", workers=[workers[1].address])
        assert await counted == 300_000
        asked = [(slot.kind, slot.task) for gate in gates.made["job-7"] for slot in gate.asked]
        assert sorted(asked) == [("cpu", "s/4"), ("network", "s/4")]


async def test_a_job_that_the_agent_does_not_know_is_not_waited_for_again(gates: Gates) -> None:
    async with started(1) as (client, _):
        assert await submit(client, "job-8", pow, 2, 5) == 32
        assert await submit(client, "job-8", pow, 2, 6) == 64
        [refused], [ours] = gates.made["job-8"], gates.made[""]
        assert refused.closed
        assert refused.asked == []
        assert [slot.stage for slot in ours.asked] == ["s", "s"]


async def test_a_job_without_tasks_is_left_and_joined_again(gates: Gates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotated_tasks, "LINGER_S", 0.0)
    async with started(1) as (client, _):
        assert await submit(client, "job-7", pow, 2, 5) == 32
        await until(lambda: gates.made["job-7"][0].closed)
        assert await submit(client, "job-7", pow, 2, 6) == 64
        assert len(gates.made["job-7"]) == 2


async def test_after_the_plugin_was_removed_there_are_no_requests(gates: Gates) -> None:
    async with started(1) as (client, (worker,)):
        assert await submit(client, "job-7", pow, 2, 5) == 32
        await worker.plugin_remove("penstock")
        assert not {"execute", "gather_dep"} & set(vars(worker))
        assert await submit(client, "job-7", pow, 2, 6) == 64
        await until(lambda: gates.made["job-7"][0].closed)
        assert len(gates.made["job-7"][0].asked) == 1


class Task:
    def __init__(self, annotations: Any) -> None:
        self.annotations = annotations


def test_annotations_that_name_no_job() -> None:
    nothing = [None, {}, {"penstock": "yes"}, {"penstock": {"job": 7}}, {"penstock": {"job": ""}}]
    assert annotated_job(map(Task, nothing)) == ("", "")
    named = Task({"penstock": {"job": "j"}})
    assert annotated_job([Task(None), named, Task({"penstock": {"job": "k", "task": "t"}})]) == ("j", "")
