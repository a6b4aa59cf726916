"""A container that uses next to nothing beside others of its job counts little in the division of the job's weight."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.rank_weights import unpromised_weight
from penstock.model import Limits
from tests.unit.agent.core.ranks_bed import Bed, TenantsBed

ALL = unpromised_weight(2.0, 0.0)


def of_one_job(bed: Bed, count: int = 2, **second: Any) -> tuple[str, list[str]]:
    """A job with ``count`` containers, the second with this specification."""
    containers = [bed.launch(), *(bed.launch(**second) for _ in range(count - 1))]
    job = bed.register(bed.connect(containers[0]))
    for container in containers[1:]:
        bed.register(bed.connect(container), job=job)
    bed.sample()
    return job, containers


def sampled(bed: Bed, times: int, **used_s: float) -> None:
    for _ in range(times):
        bed.sample(**used_s)


def test_beside_a_tenant_that_computes_a_job_with_an_idle_manager_has_its_share() -> None:
    bed = TenantsBed()
    works, other = bed.run("ann"), bed.run("bob")
    manager = bed.alone("ann")
    bed.register(bed.session_of("ann", manager), job=bed.job_of[works])
    bed.told(works, tenant="ann")
    bed.told(other, tenant="bob")
    bed.sample()
    assert bed.weight(works) == bed.weight(manager) == ALL // 4
    sampled(bed, 3, **{works: 1.0, other: 1.0, manager: 0.002})
    assert bed.weight(works) == pytest.approx(16 / 17 * bed.weight(other), rel=0.02)
    assert bed.weight(works) + bed.weight(manager) == pytest.approx(bed.weight(other), abs=1)


def test_a_pause_writes_nothing_and_a_container_that_runs_again_has_its_part_at_once(bed: Bed) -> None:
    _, (works, other) = of_one_job(bed)
    sampled(bed, 1, **{works: 1.0, other: 1.0})
    bed.weights.clear()
    for _ in range(3):
        sampled(bed, 2, **{works: 1.0})
        sampled(bed, 1, **{works: 1.0, other: 0.1})
    assert not bed.weights
    sampled(bed, 3, **{works: 1.0})
    assert bed.weights[works] > 10 * bed.weights[other]
    bed.weights.clear()
    sampled(bed, 5, **{works: 1.0})
    sampled(bed, 5)
    assert not bed.weights, "nothing has changed, nor when all of the job is idle"
    sampled(bed, 1, **{works: 1.0, other: 1 / 16})
    assert bed.weights[works] == bed.weights[other] == ALL // 2, "it has run as much as its weight allowed"


def test_a_new_container_counts_in_full_and_begins_with_what_it_will_have() -> None:
    bed = Bed(has_master=True)
    bed.command("works", job="a")
    works = bed.container("works", "a")
    bed.begin(works, next(bed.pids))
    manager = bed.launch()
    bed.register(bed.connect(manager), job="a")
    bed.used_s[works] = 0.0
    sampled(bed, 4, **{works: 1.0})
    bed.command("new", job="a")
    new = bed.container("new", "a")
    began = bed.weights[new]
    assert began == pytest.approx(16 / 33 * ALL, abs=1)
    bed.begin(new, next(bed.pids))
    bed.used_s[new] = 0.0
    sampled(bed, 1, **{works: 0.5, new: 0.5})
    assert (bed.weights[new], bed.weights[works]) == (began, pytest.approx(began, abs=1))


def test_a_container_that_asked_for_less_is_not_idle_while_it_uses_that(bed: Bed) -> None:
    _, (most, least) = of_one_job(bed, limits=Limits(cpu_weight=1))
    before = bed.weights[least], bed.weights[most]
    sampled(bed, 5, **{most: 1.9, least: 0.1})
    assert (bed.weights[least], bed.weights[most]) == before


def test_the_only_container_of_a_job_has_all_of_its_weight(bed: Bed) -> None:
    _, (works, manager) = of_one_job(bed)
    sampled(bed, 4, **{works: 1.0})
    bed.end(works)
    sampled(bed, 1, **{manager: 0.001})
    assert bed.weights[manager] == ALL
