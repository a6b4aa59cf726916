"""Jobs of an application of which no run is known: what the first one's lead may change, and what not."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from master.ordering import ClusterView, JobSizes, JobView, OrderingSettings, ordering_of
from master.ordering.unknown_applications import AHEAD

_JOBS = st.lists(
    st.builds(
        JobView,
        st.just(""),
        user=st.sampled_from(["ann", "ann", "ann", "bob"]),
        application=st.sampled_from(["train", "train", "train", "sort", ""]),
        service=st.integers(0, 40).map(float),
        submitted_at=st.integers(0, 5).map(float),
    ),
    min_size=2,
    max_size=12,
).map(lambda jobs: [replace(job, job=f"j{number}", sequence=number) for number, job in enumerate(jobs)])
_ENDED = st.lists(st.floats(0.02, 1e4), max_size=5)


def _kind(job: JobView) -> tuple[str, ...]:
    return (job.user, job.application) if job.application else (job.job,)


@given(_JOBS, _ENDED)
def test_only_the_first_job_of_each_application_moves_and_only_among_its_like(
    jobs: list[JobView], ended: list[float]
) -> None:
    sizes = JobSizes()
    for size in ended:
        sizes.learn("eve", "other", size)
    ordering = ordering_of(OrderingSettings("gittins"), sizes)
    by_name = {job.job: job for job in jobs}
    order = [by_name[name] for name in ordering.rank(jobs, ClusterView()).order()]
    apart = [replace(job, application=f"own-{job.job}") for job in jobs]
    without = [by_name[name] for name in ordering.rank(apart, ClusterView()).order()]
    assert [_kind(job) for job in order] == [_kind(job) for job in without], "each application keeps its places"
    for kind in {_kind(job) for job in jobs}:
        mine = [job for job in order if _kind(job) == kind]
        first = min(mine, key=lambda job: job.earliest)
        at = mine.index(first)
        assert all(job.service * AHEAD < first.service for job in mine[:at]), "none waits for one that received more"
        assert all(job.service * AHEAD >= first.service for job in mine[at + 1 :]), "none passes the first unduly"
        for part in (mine[:at], mine[at + 1 :]):
            before = [without.index(job) for job in part]
            assert all(one < other for one, other in pairwise(before)), "the others keep their order"
