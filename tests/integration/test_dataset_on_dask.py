"""Datasets on a real Dask cluster: results, annotations, places, failures."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import add
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster, get_worker
from hypothesis import given, settings

from penstock.client import JobCancelled
from penstock.dataset import Dataset
from penstock.engines.dask_dataset import Options, WorkerGoneError, compile_graph, execution, run, run_plan
from penstock.model.resources import Capacity
from penstock.opgraph.dataflow import OpGraph, Take, plan
from penstock.wire.agent_api import PROTOCOL, Welcome
from penstock.wire.errors import refused
from tests.dataset_pipelines import Both, pipelines
from tests.fakes.agent import FakeAgent
from tests.fakes.agent_thread import AgentThread
from tests.integration.conftest import MasterProcess, agents, until

ALONE = Options(placed=False)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers of two threads, in this process."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as made,
    ):
        yield made


def annotation() -> dict[str, Any]:
    """Return the annotations of the Dask task that calls this."""
    worker = get_worker()
    return dict(worker.state.tasks[worker.get_current_task()].annotations["penstock"])


@given(pipelines())
@settings(max_examples=12)
def test_the_result_is_that_of_plain_python(client: Client, made: Both) -> None:
    assert made.agrees(run(made.dataset.collect(), client, ALONE))
    assert run(made.dataset.count(), client, ALONE) == len(made.items)


def test_words_of_files_are_counted(client: Client, tmp_path: Path) -> None:
    paths = []
    for number in range(3):
        path = tmp_path / f"{number}.txt"
        path.write_text("to be or not to be\nthat is the question\n" * 200)
        paths.append(path)
    words = Dataset.read_text(paths, partition_bytes=3000).flat_map(str.split).map(lambda word: (word, 1))
    counts = run(words.reduce_by_key(add, 3).collect(), client, ALONE)
    assert dict(counts) == dict.fromkeys(["or", "not", "that", "is", "the", "question"], 600) | {"to": 1200, "be": 1200}
    assert len(counts) == 8


def test_without_a_cluster_one_of_threads_is_started_for_the_call() -> None:
    numbers = Dataset.from_items(range(10), 2)
    assert run(numbers.map(lambda item: item * item), options=ALONE) == [[0, 1, 4, 9, 16], [25, 36, 49, 64, 81]]


def test_the_current_client_is_used() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        name = Dataset.from_items([0], 1).map(lambda _: get_worker().address)
        assert run(name.collect(), options=ALONE) == [cluster.workers[0].address]


def test_tasks_carry_kind_stage_and_bytes(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("word\n" * 1000)
    read = Dataset.read_text(path).map_partitions(lambda lines: [(0, (annotation(), len(lines)))])
    [(_, [(first, lines)])] = run(read.group_by_key(1).collect(), client, ALONE)
    assert lines == 1000
    assert (first["kind"], first["monotask"]) == ("cpu", "cpu")
    assert first["stage"].startswith("0 lines+map_partitions")
    assert first["task"] == f"{first['stage']}/0"
    assert 5000 <= first["input_bytes"] < 6000  # as bytes, before they are decoded
    last = read.group_by_key(1).map(lambda _: annotation())
    [second] = run(last.collect(), client, ALONE)
    assert second["stage"] == "1 group_by_key+map"
    assert second["input_bytes"] > 0
    graph, _ = compile_graph(last.plan())
    layers = [layer.annotations["penstock"] for layer in graph.layers.values() if layer]
    assert {each["monotask"] for each in layers if "monotask" in each} == {"disk", "cpu", "network"}
    assert [each["kind"] for each in layers if each.get("monotask") == "network"] == ["none"]


def test_nothing_is_left_on_the_cluster(client: Client) -> None:
    pairs = Dataset.from_items(range(100), 4).map(lambda item: (item % 7, item))
    assert len(run(pairs.group_by_key(3).collect(), client, ALONE)) == 7

    def held(dask_scheduler: Any) -> bool:
        return bool(dask_scheduler.tasks)

    deadline = threading.Event()
    for _ in range(300):
        if not client.run_on_scheduler(held):
            return
        deadline.wait(0.1)
    pytest.fail("Dask still holds results without a reference")


def test_an_exception_of_a_function_is_raised_with_the_name_of_its_operation(client: Client) -> None:
    def broken(item: int) -> int:
        if item == 5:
            raise KeyError("five")
        return item

    made = Dataset.from_items(range(8), 2).map(broken).map(lambda item: (item, item)).group_by_key()
    with pytest.raises(KeyError, match="five") as error:
        run(made.collect(), client, ALONE)
    assert error.value.__notes__ == ["in operation 'map(broken)', partition 1"]
    # The cluster is not harmed.
    assert run(Dataset.from_items([1]).count(), client, ALONE) == 1


def test_a_key_that_cannot_be_hashed_is_the_users_error(client: Client) -> None:
    with pytest.raises(TypeError, match="a object cannot be a key"):
        run(Dataset.from_items([1]).map(lambda _: (object(), 1)).group_by_key().collect(), client, ALONE)


def test_worker_processes_agree_on_keys_and_one_that_is_killed_is_made_up_for(tmp_path: Path) -> None:
    """Text hashes differently in each process; data that a dead worker held is computed again."""
    killed = tmp_path / "killed"

    def suicidal(pair: tuple[str, int]) -> tuple[str, int]:
        if pair[0] == "w3":
            try:
                killed.touch(exist_ok=False)
            except FileExistsError:
                return pair
            os.kill(os.getpid(), signal.SIGKILL)
        return pair

    words = Dataset.from_items([f"w{number % 40}" for number in range(400)], 4).map(lambda word: (word, 1))
    counted = words.reduce_by_key(add, 3)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        expected = sorted((f"w{number}", 10) for number in range(40))
        assert sorted(run(counted.collect(), client, ALONE)) == expected
        again = counted.map(suicidal).join(words).map(lambda pair: (pair[0], pair[1][1])).reduce_by_key(add)
        assert sorted(run(again.collect(), client, ALONE)) == expected
    assert killed.exists()


class _LostAtFirst:
    """A future whose value was lost with its worker just after it had finished; Dask computes it again."""

    def __init__(self, future: Any) -> None:
        self._future, self._statuses = future, ["lost", "pending"]

    @property
    def status(self) -> str:
        return self._statuses.pop() if self._statuses else str(self._future.status)


def test_a_value_that_is_lost_after_it_was_made_is_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    done = execution._Run._done

    def lost_at_first(self: Any, monotask: int) -> Any:
        said = done(self, monotask)
        return lambda future: said(_LostAtFirst(future))  # type: ignore[arg-type]

    monkeypatch.setattr(execution._Run, "_done", lost_at_first)
    assert run(Dataset.from_items(range(6)).map(lambda item: 2 * item).collect(), client, ALONE) == [0, 2, 4, 6, 8, 10]


def test_several_datasets_of_one_operation_and_updates(client: Client) -> None:
    """Only the primitives can express these: two outputs, an update, and a barrier that takes a whole input."""
    graph = OpGraph()
    given_numbers = graph.create_input([[1, 2], [3]], [8, 4])
    evens, odds, parts, all_given, total = (
        graph.create_data(2, name) for name in ("evens", "odds", "parts", "all", "total")
    )
    split = graph.create_op("cpu", "split").read(given_numbers).create(evens).create(odds).create(parts)
    split.set_udf(lambda items: ([i for i in items if i % 2 == 0], [i for i in items if i % 2], [items[:1], items[1:]]))
    update = graph.create_op("cpu", "update").read(odds).update(evens).set_udf(lambda odd, even: [*even, len(odd)])
    pull = graph.create_op("network", "pull").read(parts).create(all_given)
    everything = graph.create_op("network", "everything").read(given_numbers, Take.WHOLE).create(graph.create_data(2))
    merge = graph.create_op("cpu", "merge").read(evens).read(all_given).read(graph.data[-1]).create(total)
    merge.set_udf(lambda even, pulled, every: (even, pulled, every))
    split.to(update, "sync")
    split.to(pull, "sync")
    for before in (update, pull, everything):
        before.to(merge)
    planned = plan(graph, [total, odds])
    expected = [
        [([2, 1], [[1], [3]], [[1, 2], [3]]), ([1], [[2], []], [[1, 2], [3]])],
        [[1], [3]],
    ]
    dsk, keys = compile_graph(planned)
    assert [list(dask.get(dsk, each)) for each in keys] == expected
    assert run_plan(planned, client, ALONE) == expected


# ---------------------------------------------------------------- places


@contextmanager
def placing(directory: Path, **settings: Any) -> Iterator[FakeAgent]:
    """Return the socket of an agent whose master places the tasks of its requests."""
    with AgentThread(directory) as thread:
        for name, value in settings.items():
            setattr(thread.agent, name, value)
        yield thread.agent


def where() -> str:
    return str(get_worker().address)


def test_tasks_run_on_the_worker_of_the_node_that_the_master_chose(client: Client, tmp_path: Path) -> None:
    chosen, other = sorted(client.nthreads())
    numbers = Dataset.from_items(range(8), 4).map(lambda item: (item % 3, where()))
    seen = numbers.group_by_key(3).flat_map(lambda pair: [*pair[1], where()])
    with placing(tmp_path) as fake:
        options = Options(
            name="places", socket=fake.socket, memory_bytes=10**6, nodes={"fake": [chosen], "elsewhere": [other]}
        )
        assert set(run(seen.collect(), client, options)) == {chosen}
        [registered] = fake.called("register_job")
        assert (registered.name, registered.memory_bytes) == ("places", 10**6)
        assert [asked.stage for asked in fake.called("place")] == [
            "0 from_items+map+group_by_key.send",
            "1 group_by_key+flat_map",
        ]
        first, second = (asked.tasks for asked in fake.called("place"))
        assert [request.task for request in first] == [f"0 from_items+map+group_by_key.send/{n}" for n in range(4)]
        assert all(request.nodes == ("fake", "elsewhere") for request in [*first, *second])
        assert all(request.usage.cpu > 0 and request.usage.network == 0 for request in first)
        assert all(0 < request.memory_bytes <= 10**6 for request in first)
        assert sum(request.usage.network for request in second) > 0
        done = [task for asked in fake.called("tasks_done") for task in asked.tasks]
        assert sorted(done) == sorted(request.task for request in [*first, *second])
        assert fake.called("end_job")


def test_workers_are_found_by_the_agents_of_their_hosts(client: Client, tmp_path: Path) -> None:
    with placing(tmp_path) as fake:
        seen = Dataset.from_items(range(8), 8).map(lambda _: where())
        # Both workers are on the one node: tasks are spread over them.
        assert set(run(seen.collect(), client, Options(socket=fake.socket))) == set(client.nthreads())
        [asked] = fake.called("place")
        assert {request.nodes for request in asked.tasks} == {("fake",)}


@pytest.mark.parametrize("trouble", ["no master", "refuses", "unknown node", "no agent"])
def test_without_an_answer_tasks_go_where_dask_puts_them(client: Client, tmp_path: Path, trouble: str) -> None:
    settings: dict[str, Any] = {"refuse": {"place": refused("no")}} if trouble == "refuses" else {}
    nodes = {"fake": list(client.nthreads())} if trouble == "refuses" else None
    numbers = Dataset.from_items(range(8), 4).map(lambda item: (item % 3, item))
    if trouble == "no agent":
        assert run(numbers.group_by_key().count(), client, Options(socket=tmp_path / "none")) == 3
        return
    with placing(tmp_path, **settings) as fake:
        if trouble == "no master":
            fake._hello = lambda peer, asked: no_master()  # type: ignore[method-assign]
        if trouble == "unknown node":
            nodes = {"another": list(client.nthreads())}
        assert run(numbers.group_by_key().count(), client, Options(socket=fake.socket, nodes=nodes)) == 3


def no_master() -> Any:
    return Welcome(
        protocol=PROTOCOL,
        version="0",
        node="fake",
        user="tester",
        capacity=Capacity(cores=1.0, memory_bytes=1),
        network_bypass_bytes=16384,
        max_frame_bytes=8 << 20,
        enforced=[],
        master=False,
    )


class Trap:
    """Holds each task that comes to a certain worker. In this process and not in the function, which is pickled."""

    victim = ""
    begun = threading.Event()
    release = threading.Event()


def wait_on_the_victim(_: int) -> str:
    if where() == Trap.victim:
        Trap.begun.set()
        Trap.release.wait(60)
    return where()


@pytest.mark.parametrize("attempts", [1, 2])
def test_when_a_chosen_worker_goes_away_everything_starts_again_elsewhere(tmp_path: Path, attempts: int) -> None:
    with (
        placing(tmp_path) as fake,
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
        ThreadPoolExecutor() as threads,
    ):
        Trap.victim = cluster.workers[1].address
        Trap.begun.clear()
        Trap.release.clear()
        wanted = Dataset.from_items(range(4), 4).map(wait_on_the_victim).collect()
        nodes = {"fake": list(client.nthreads())}
        found = threads.submit(run, wanted, client, Options(socket=fake.socket, nodes=nodes, attempts=attempts))
        assert Trap.begun.wait(60)
        client.retire_workers([Trap.victim], close_workers=True, remove=True)
        Trap.release.set()
        if attempts == 1:
            with pytest.raises(WorkerGoneError, match="chosen by the master, left the cluster"):
                found.result(120)
        else:
            assert found.result(120) == [cluster.workers[0].address] * 4
        assert len(fake.called("register_job")) == attempts


def test_when_the_agent_goes_away_dask_places(client: Client, tmp_path: Path) -> None:
    with AgentThread(tmp_path) as agent, ThreadPoolExecutor() as threads:
        agent.agent.places = False
        numbers = Dataset.from_items(range(8), 4).map(lambda item: (item % 3, item))
        options = Options(socket=agent.socket, patience_s=0.1)
        found = threads.submit(run, numbers.group_by_key().count(), client, options)
        agent.until(lambda fake: bool(fake.called("place")))
        assert not found.done()
        agent.stop()
        assert found.result(60) == 3


def test_a_job_that_a_user_cancels_raises_that_user_s_name_and_nothing_is_started(
    client: Client, tmp_path: Path
) -> None:
    with AgentThread(tmp_path) as agent, ThreadPoolExecutor() as threads:
        agent.agent.places = False
        numbers = Dataset.from_items(range(8), 4).map(lambda item: (item % 3, item))
        found = threads.submit(run, numbers.group_by_key().count(), client, Options(name="doomed", socket=agent.socket))
        agent.until(lambda fake: bool(fake.called("place")))
        agent.do(lambda fake: fake.cancel_job("job-1", "ann"))
        with pytest.raises(JobCancelled, match="job 'doomed' was cancelled by ann"):
            found.result(60)
        assert not agent.agent.called("end_job")


def test_a_job_that_no_waiting_helps_raises_the_reason(client: Client, tmp_path: Path) -> None:
    with placing(tmp_path, admits=False, waits="it wants 91 TiB reserved", waits_for_ever=True) as fake:
        options = Options(name="huge", socket=fake.socket, nodes={"fake": list(client.nthreads())})
        with ThreadPoolExecutor() as threads:
            found = threads.submit(run, Dataset.from_items(range(8), 4).count(), client, options)
            with pytest.raises(RuntimeError, match=r"job .huge.: it wants 91 TiB reserved; lower Options"):
                found.result(30)
        assert [asked.job for asked in fake.called("end_job")] == ["job-1"]


def test_the_reason_why_a_job_waits_is_logged_once(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with AgentThread(tmp_path) as agent, ThreadPoolExecutor() as threads:
        agent.agent.admits, agent.agent.waits = False, "it wants 2 GiB reserved"
        options = Options(name="late", socket=agent.socket, nodes={"fake": list(client.nthreads())})
        found = threads.submit(run, Dataset.from_items(range(8), 4).count(), client, options)
        agent.until(lambda fake: bool(fake.called("progress")))
        agent.do(lambda fake: fake.admit("job-1"))
        assert found.result(60) == 8
    said = [record.getMessage() for record in caplog.records if record.name.startswith("penstock.engines")]
    assert said == ["the dataset's job 'late' waits: it wants 2 GiB reserved"]


def test_a_failure_gives_up_placed_tasks(client: Client, tmp_path: Path) -> None:
    with placing(tmp_path) as fake:
        broken = Dataset.from_items(range(4), 4).map(lambda item: 1 // (item - 2))
        with pytest.raises(ZeroDivisionError):
            run(broken.collect(), client, Options(socket=fake.socket))
        assert [asked.job for asked in fake.called("end_job")] == ["job-1"]


async def test_a_client_that_cannot_be_waited_for_is_refused(client: Client) -> None:
    async with Client(client.scheduler.address, asynchronous=True, set_as_default=False) as other:
        with pytest.raises(TypeError, match="not asynchronous"):
            run(Dataset.from_items([1]).count(), other, ALONE)


def test_an_object_that_cannot_be_sent_to_a_worker_is_the_user_s_error(client: Client) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="serialize"):
        run(Dataset.from_items([1]).map(lambda _: lock.locked()).collect(), client, ALONE)


def test_a_real_master_places_on_a_node_that_has_a_worker(
    client: Client, start_agent: Callable[..., Any], master: MasterProcess, tmp_path: Path
) -> None:
    alpha, _ = asyncio.run(agents(start_agent, master, tmp_path, "alpha", "beta"))
    first, second = sorted(client.nthreads())
    pairs = Dataset.from_items(range(8), 4).map(lambda item: (where(), item))
    options = Options(socket=alpha.socket, nodes={"beta": [second]})
    assert [key for key, _ in run(pairs.group_by_key(2).collect(), client, options)] == [second]
    options = Options(socket=alpha.socket, nodes={"alpha": [first], "beta": [second]}, memory_bytes=10**6)
    assert {where for where, _ in run(pairs.collect(), client, options)} <= {first, second}
    assert master.status()["decisions"]["assigned"] == 4 + 2 + 4
    until(lambda: not master.status()["jobs"], "a job has not ended")  # the last one may, a moment after its answer


def test_there_is_at_least_one_attempt(client: Client) -> None:
    with pytest.raises(ValueError, match="attempts must be at least 1, not 0"):
        run(Dataset.from_items([1]).count(), client, Options(attempts=0))
