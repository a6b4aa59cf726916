"""Ursa's order, concurrency and rates, by example (§4.2.3, §4.2.2)."""

from __future__ import annotations

import tracemalloc

import pytest

from agent.queues import MonotaskQueues, ProcessingRate
from penstock.model import MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion
from penstock.wire.errors import RpcError
from tests.fakes.queues import make_queues

CPU, DISK, NETWORK = ResourceKind.CPU, ResourceKind.DISK, ResourceKind.NETWORK


def make(cores: int = 1, links: int = 1) -> MonotaskQueues:
    return make_queues(cores, links=links, jobs={"j": 0.0}, network_bypass_bytes=16 * 1024)


def spec(number: int, kind: ResourceKind, size: int, stage: str = "s", running: bool = False) -> MonotaskSpec:
    return MonotaskSpec(id=number, kind=kind, input_bytes=size, stage=stage, running=running)


def run_all(queues: MonotaskQueues, granted: list[int]) -> list[int]:
    """Complete granted monotasks until nothing is left; return the order of grants."""
    order = list(granted)
    position = 0
    while position < len(order):
        more = queues.complete(1, "j", [Completion(id=order[position])], 1.0)
        order += [m.id for m in more if isinstance(m.id, int)]
        position += 1
    return order


def grant_order(kind: ResourceKind, sizes: list[int]) -> list[int]:
    queues = make()
    blocker = queues.submit(1, "j", [spec(0, kind, 10**6)], 0.0)
    queues.submit(1, "j", [spec(n, kind, size) for n, size in enumerate(sizes, start=1)], 0.0)
    order = run_all(queues, [m.id for m in blocker if isinstance(m.id, int)])
    return [sizes[n - 1] for n in order[1:]]


@pytest.mark.parametrize(("kind", "larger_first"), [(CPU, True), (DISK, False), (NETWORK, False)])
def test_larger_inputs_first_on_the_cpu_and_smaller_ones_on_disk_and_network(
    kind: ResourceKind, larger_first: bool
) -> None:
    sizes = [30000, 17000, 50000, 20000]
    assert grant_order(kind, sizes) == sorted(sizes, reverse=larger_first)


def test_stages_in_order_of_appearance_for_any_sizes() -> None:
    queues = make()
    first = queues.submit(1, "j", [spec(0, CPU, 1, "a")], 0.0)
    queues.submit(1, "j", [spec(1, CPU, 5, "a"), spec(2, CPU, 900, "b"), spec(3, CPU, 7, "a")], 0.0)
    assert run_all(queues, [m.id for m in first if isinstance(m.id, int)]) == [0, 3, 1, 2]


def test_small_network_monotasks_bypass_and_small_others_do_not() -> None:
    queues = make()
    assert len(queues.submit(1, "j", [spec(n, NETWORK, 16 * 1024 - 1) for n in range(9)], 0.0)) == 9
    assert queues.idle().network == 1
    assert len(queues.submit(1, "j", [spec(20, NETWORK, 16 * 1024), spec(21, NETWORK, 16 * 1024)], 0.0)) == 1
    assert len(queues.submit(1, "j", [spec(30, CPU, 1), spec(31, CPU, 1)], 0.0)) == 1


@pytest.mark.parametrize("kind", [DISK, NETWORK])
def test_where_jobs_are_ranked_a_monotask_does_not_wait_for_those_of_jobs_behind(kind: ResourceKind) -> None:
    queues = make_queues(2, disks=2, jobs={"behind": 1.0, "first": 9.0, "second": 5.0}, ranked=True)
    held = queues.submit(1, "behind", [spec(n, kind, 10**6) for n in range(4)], 0.0)
    assert len(held) == 2
    assert [m.job for m in queues.submit(1, "first", [spec(n, kind, 10**6) for n in range(3)], 1.0)] == ["first"] * 2
    assert queues.submit(1, "second", [spec(0, kind, 10**6)], 1.0) == [], "those of the first hold both slots"
    for one in held:
        assert queues.complete(1, "behind", [Completion(id=one.id)], 2.0) == []
    assert [m.job for m in queues.complete(1, "first", [Completion(id=0)], 3.0)] == ["first"]
    assert [m.job for m in queues.complete(1, "first", [Completion(id=1)], 4.0)] == ["second"]
    assert [m.job for m in queues.complete(1, "first", [Completion(id=2)], 5.0)] == ["behind"]


@pytest.mark.parametrize("kind", [DISK, NETWORK])
def test_where_jobs_are_ranked_at_most_four_times_the_slots_are_in_use(kind: ResourceKind) -> None:
    names = [f"job-{number}" for number in range(6)]
    priorities = {name: float(number) for number, name in enumerate(names)}
    queues = make_queues(1, disks=1, links=1, jobs=priorities, ranked=True)
    granted = [bool(queues.submit(1, name, [spec(0, kind, 10**6)], 0.0)) for name in names]
    assert granted == [True] * 4 + [False] * 2, "each passes the slots of all before it in this list"
    assert queues.complete(1, "job-0", [Completion(id=0)], 1.0)[0].job == "job-5"


def test_a_request_at_fault_changes_nothing_and_names_the_element() -> None:
    queues = make()
    queues.submit(1, "j", [spec(1, CPU, 1)], 0.0)
    with pytest.raises(RpcError) as caught:
        queues.submit(1, "j", [spec(2, CPU, 1), spec(1, CPU, 1)], 0.0)
    assert caught.value.body.field == "monotasks[1].id"
    with pytest.raises(RpcError) as caught:
        queues.complete(1, "j", [Completion(id=1), Completion(id=1)], 0.0)
    assert caught.value.body.field == "monotasks[1].id"
    with pytest.raises(RpcError, match="unknown job"):
        queues.submit(1, "nobody", [spec(1, CPU, 1)], 0.0)
    assert queues.job_counts("j") == {"queued": 0, "running": 1, "done": 0, "failed": 0}


def test_completions_take_no_memory_while_the_rate_is_not_requested() -> None:
    rate = ProcessingRate(window_s=10.0)
    tracemalloc.start()
    try:
        for second in range(20_000):
            rate.completed(float(second), 100, 1.0)
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes < 100_000
    assert rate.bytes_per_s(20_000.0) == 100.0


def test_rate_is_x_over_t_in_the_window_and_cpu_counts_every_core() -> None:
    rate = ProcessingRate(window_s=10.0)
    assert rate.bytes_per_s(0.0) == 0.0
    rate.completed(1.0, 100, 2.0)
    rate.completed(2.0, 300, 2.0)
    assert rate.bytes_per_s(2.0) == 100.0
    assert rate.bytes_per_s(11.5) == 150.0  # the first has left the window
    assert rate.bytes_per_s(99.0) == 150.0  # the last known one holds
    queues = make(cores=4)
    queues.submit(1, "j", [spec(1, CPU, 1000)], 0.0)
    queues.complete(1, "j", [Completion(id=1)], 2.0)
    assert queues.rates(2.0).cpu == 2000.0


def test_monotasks_that_share_a_link_have_its_rate_together() -> None:
    """Two at once take a second for 500,000 bytes each: the link does a million a second."""
    queues = make(links=2)
    queues.submit(1, "j", [spec(n, NETWORK, 500_000) for n in (1, 2)], 0.0)
    queues.complete(1, "j", [Completion(id=n) for n in (1, 2)], 1.0)
    assert queues.rates(1.0).network == 1e6


def test_commands_of_unknown_input_do_not_change_the_rate() -> None:
    queues = make(cores=3)
    queues.submit(1, "j", [spec(1, CPU, 1000), spec(2, CPU, 0), spec(3, CPU, 0)], 0.0)
    queues.complete(1, "j", [Completion(id=2)], 90.0)
    assert queues.rates(90.0).cpu == 0.0
    queues.submit(1, "j", [spec(4, CPU, 0)], 90.0)
    queues.complete(1, "j", [Completion(id=3), Completion(id=1), Completion(id=4)], 100.0)
    assert queues.rates(100.0).cpu == 3 * 10.0, "1,000 bytes in 100 s on each of three cores"


def test_failed_and_cancelled_work_does_not_count_for_the_rate() -> None:
    queues = make(cores=2)
    queues.submit(1, "j", [spec(1, CPU, 1000), spec(2, CPU, 1000)], 0.0)
    queues.complete(1, "j", [Completion(id=1, failed=True)], 1.0)
    queues.cancel(1, "j", [2], 1.0)
    assert queues.rates(1.0).cpu == 0.0
    assert queues.job_counts("j") == {"queued": 0, "running": 0, "done": 0, "failed": 1}
    assert queues.counts(CPU, 1.0).slot_seconds == 2.0
