"""A node divided among tenants: with any work, their shares are by weight, and together they are the whole."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agent.core.rank_weights import apportion, nice_of, unpromised_weight
from penstock.model import Limits
from tests.unit.agent.core.ranks_bed import TenantsBed

weights = st.floats(0.1, 10.0)


@given(st.integers(0, 100_000), st.lists(weights, max_size=20))
def test_parts_sum_up_and_are_proportional_but_for_one(total: int, of: list[float]) -> None:
    parts = apportion(total, of)
    assert sum(parts) == (total if of else 0)
    for part, weight in zip(parts, of, strict=True):
        assert abs(part - total * weight / sum(of)) <= 1


@given(st.lists(st.tuples(weights, st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=4), st.booleans())
def test_the_shares_of_a_node(tenants: list[tuple[float, int, int]], promised: bool) -> None:
    """Each tenant has a number of jobs, and of containers of no job."""
    bed = TenantsBed()
    if promised:
        bed.run("promised", cpu_cores=1.0, limits=Limits(cpu_cores=1.0))
    jobs = {f"u{at}": [bed.run(f"u{at}") for _ in range(count)] for at, (_, count, _) in enumerate(tenants)}
    for at, (_, _, alone) in enumerate(tenants):
        for _ in range(alone):
            bed.alone(f"u{at}")
    for at, (weight, _, _) in enumerate(tenants):
        bed.told(*jobs[f"u{at}"], tenant=f"t{at}", weight=weight)
    total, of_all = unpromised_weight(2.0, float(promised)), sum(weight for weight, _, _ in tenants)
    standings = bed.node.ranks.standings.values()
    for at, (weight, count, alone) in enumerate(tenants):
        own = sorted((each for each in standings if each.tenant == f"t{at}"), key=lambda each: each.rank)
        assert [each.rank for each in own] == [*range(count + alone)]
        assert all(first.weight >= second.weight for first, second in pairwise(own))
        part = total * weight / of_all
        assert abs(sum(each.weight for each in own) - max(part, len(own))) <= 1 + len(own) * (part < 2 * len(own))
    least = any(total * weight / of_all < 2 * (count + alone) for weight, count, alone in tenants)
    assert least or sum(each.weight for each in standings) == total


@given(st.lists(weights, min_size=1, max_size=6), st.integers(1, 12))
def test_nice_values_keep_the_proportion_of_tenants_and_the_jobs_part_of_the_host(of: list[float], each: int) -> None:
    """As far as nice values go: a tenant below -10 or above 15 would be cut off."""
    jobs = each * len(of)
    exact = [jobs * weight / sum(of) for weight in of]
    firsts = [1.25 ** -nice_of(0, share) for share in exact]
    for first, share in zip(firsts, exact, strict=True):
        if 1.25**-14 < share < 1.25**9:
            assert 0.89 < first / share < 1.13
