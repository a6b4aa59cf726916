"""Tasks placed by their peaks, as Ursa §5.1.2 compares itself with: Tetris, Tetris2, Capacity."""

from __future__ import annotations

import numpy as np
import pytest

from master.ordering import ClusterView, JobView, OrderingSettings, Ranking, ordering_of
from master.placement import Need, PeakPlacement, Peaks, Stage, Unreserved, why_not
from master.placement.ursa import Account
from master.placement.workers import Mask

#: 1 byte/s a core, disks of 4, a link of 10.
RATES = (1.0, 4.0, 10.0)


def placement(name: str, *free: tuple[float, float, float, float], to_mean: float = 1.0) -> PeakPlacement:
    """Workers of 4 cores, 4 and 10 bytes/s, 100 bytes of memory, of which so much is free."""
    rows = np.array(free, dtype=float)
    workers = Unreserved(np.tile((4.0, 4.0, 10.0, 100.0), (len(rows), 1)), rows)
    return PeakPlacement(name, workers, Peaks(RATES, to_mean))


def need(task: str, *amounts: float, allowed: Mask | None = None, job: str = "j") -> Need:
    cpu, disk, network, memory = amounts
    return Need(job, task, (cpu, disk, network, memory), allowed=allowed)


def ranking(name: str = "ejf", **elapsed_s: float) -> Ranking:
    jobs = [JobView(job, submitted_at=-elapsed) for job, elapsed in (elapsed_s or {"j": 0.0}).items()]
    return ordering_of(OrderingSettings(name)).rank(jobs, ClusterView())


def went(policy: PeakPlacement, *needs: Need) -> list[tuple[str, int]]:
    return [(p.need.task, p.worker) for p in policy.place([Stage("j", "s", list(needs))], ranking())]


def test_a_peak_is_so_many_times_the_mean_over_the_life() -> None:
    # 6 s of CPU, 8 bytes of disk in 2 s, 20 of network in 2 s: a life of 10 s.
    assert Peaks(RATES, 1.0).of(6.0, 8.0, 20.0) == pytest.approx((0.8, 2.0))
    assert Peaks(RATES, 2.0).of(6.0, 8.0, 20.0) == pytest.approx((1.6, 4.0))
    assert Peaks(RATES, 50.0).of(6.0, 8.0, 20.0) == (4.0, 10.0), "no faster than the disk and the link are"
    assert Peaks(RATES, 2.0).of(0.0, 0.0, 0.0) == (0.0, 0.0)


def test_tetris_takes_the_best_aligned_worker() -> None:
    # One that is all network: its peak is the link. The second worker has all of that free, the first more of the rest.
    assert went(placement("tetris", (4, 4, 9, 100), (1, 1, 10, 20)), need("t", 0, 0, 10, 10)) == [("t", 1)]
    # One that computes and holds memory goes where more of both is free.
    assert went(placement("tetris", (4, 4, 9, 100), (1, 1, 10, 20)), need("t", 5, 0, 0, 10)) == [("t", 0)]


@pytest.mark.parametrize(
    ("name", "disk", "network", "placed"),
    [
        ("tetris", 0, 100, 2), ("tetris2", 0, 100, 4), ("capacity", 0, 100, 4),
        ("tetris2", 40, 0, 2), ("capacity", 40, 0, 4),
    ],
)  # fmt: skip
def test_tetris_knows_of_the_network_both_tetrises_of_the_disk_and_yarn_of_neither(
    name: str, disk: float, network: float, placed: int
) -> None:
    """Two tasks at their peaks fill the link, 5 bytes a second each, or the disk, 2 each; there are cores for four."""
    needs = [need(f"t{n}", 10, disk, network, 1) for n in range(4)]
    assert len(went(placement(name, (4, 4, 10, 100)), *needs)) == placed


def test_capacity_goes_where_most_is_available() -> None:
    policy = placement("capacity", (2, 4, 10, 100), (4, 0, 0, 60))
    # Free cores and memory: 0.5 + 1 against 1 + 0.6; each task takes a quarter and a tenth.
    assert went(policy, *[need(f"t{n}", 5, 0, 0, 10) for n in range(3)]) == [("t0", 1), ("t1", 0), ("t2", 1)]


def test_nothing_beyond_the_free_resources_and_a_smaller_task_behind_is_still_tried() -> None:
    needs = [need("large", 5, 0, 0, 60), need("larger", 5, 0, 0, 50), need("small", 5, 0, 0, 40)]
    assert went(placement("capacity", (4, 4, 10, 100)), *needs) == [("large", 0), ("small", 0)]
    assert went(placement("tetris", (0, 4, 10, 100)), *needs) == [], "no core is left"


def test_tasks_go_only_where_they_may() -> None:
    second = np.array([False, True])
    assert went(placement("tetris", (4, 4, 10, 100), (1, 1, 1, 20)), need("t", 5, 0, 0, 10, allowed=second)) == [
        ("t", 1)
    ]


def test_the_earlier_job_goes_first_even_if_another_fits_better() -> None:
    stages = [Stage(job, "s", [need(f"{job}{n}", 5, 0, 0, 10, job=job) for n in range(2)]) for job in ("late", "early")]
    policy = placement("tetris", (3, 4, 10, 100))
    placed = policy.place(stages, ranking(late=0.0, early=10.0))
    assert [p.need.task for p in placed] == ["early0", "early1", "late0"]


def test_shares_are_kept_to_task_by_task() -> None:
    stages = [Stage(job, "s", [need(f"{job}{n}", 5, 0, 0, 10, job=job) for n in range(4)]) for job in ("a", "b")]
    placed = placement("capacity", (4, 4, 10, 100)).place(stages, ranking("fair", a=0.0, b=0.0))
    assert sorted(p.need.job for p in placed) == ["a", "a", "b", "b"]


def test_each_decision_is_explained_and_accounted_for() -> None:
    accounts: list[Account] = []
    policy = placement("tetris", (4, 4, 10, 100), (4, 4, 10, 5))
    [placed] = policy.place([Stage("j", "s", [need("t", 5, 0, 0, 10)])], ranking(), account=accounts.append)
    assert placed.why.startswith("tetris: peak demand · free = 0.35 (cores 0.25 of 1, memory 0.1 of 1); ejf")
    assert accounts[0].fit.tolist() == [pytest.approx(0.35), -np.inf]
    assert accounts[0].placement is placed


def test_the_reason_counts_the_nodes_that_lack_each_resource() -> None:
    policy = placement("tetris", (0, 4, 10, 100), (4, 4, 1, 5))
    assert policy.lacks(need("t", 10, 0, 100, 10)) == {
        "unreserved cores": 1, "unreserved network bandwidth": 1, "unreserved memory": 1
    }  # fmt: skip
    assert why_not(need("t", 10, 0, 0, 10), policy) == (
        "of 2 nodes 1 lacks unreserved cores, 1 lacks unreserved memory"
    )
    assert why_not(need("t", 10, 0, 0, 10), placement("tetris2", (4, 4, 10, 100))).endswith(
        "could take it in this order"
    )


def test_no_workers_no_placements() -> None:
    policy = PeakPlacement("tetris", Unreserved(np.empty((0, 4)), np.empty((0, 4))), Peaks(RATES, 2.0))
    assert policy.place([Stage("j", "s", [need("t", 1, 0, 0, 0)])], ranking()) == []
    assert why_not(need("t", 1, 0, 0, 0), policy) == "no node is connected"
