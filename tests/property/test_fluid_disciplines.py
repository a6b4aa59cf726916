"""The disciplines against their definitions, on random workloads.

The oracle has no heaps and no virtual time: at every moment it computes from the definition, in exact fractions, which
job is served at which rate, and goes to the next moment at which that changes.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fluid import Job, serve
from simulator.fluid.model import discipline_of
from simulator.fluid.spec import Policy

_EIGHTHS = st.integers(1, 80).map(lambda eighths: eighths / 8)
_WORKLOADS = st.lists(
    st.builds(
        Job,
        name=st.just("job"),
        at_s=st.integers(0, 160).map(lambda eighths: eighths / 8),
        size=_EIGHTHS,
        weight=st.integers(1, 5).map(float),
    ),
    min_size=1,
    max_size=12,
)
_QUEUES = st.builds(
    Policy,
    name=st.just("las_mq"),
    queues=st.integers(1, 5),
    first_threshold=st.sampled_from([0.25, 0.5, 1.0, 3.0]),
    step=st.sampled_from([1.5, 2.0, 4.0]),
    sharing=st.sampled_from(["weighted", "strict"]),
)
_POLICIES = st.one_of(st.sampled_from(["fifo", "fair", "las", "srpt"]).map(lambda name: Policy(name=name)), _QUEUES)

Rates = dict[int, Fraction]


class _Oracle:
    """``served[i]`` is the service of job i; ``line`` holds the present jobs, in the order of arrival."""

    def __init__(self, jobs: list[Job], policy: Policy) -> None:
        self.jobs = jobs
        self.policy = policy
        self.served = [Fraction(0)] * len(jobs)
        self.ended: dict[int, Fraction] = {}
        self.line: list[int] = []
        self.queues: dict[int, list[int]] = {queue: [] for queue in range(policy.queues)}
        self.uppers = [policy.multilevel().upper(queue) for queue in range(policy.queues)]

    def run(self) -> list[float]:
        now = Fraction(0)
        coming = sorted(range(len(self.jobs)), key=lambda index: self.jobs[index].at_s)
        while coming or self.line:
            rates = self.rates() if self.line else {}
            steps = [step for job, rate in rates.items() if rate > 0 for step in self.steps(job, rate, rates)]
            if coming:
                steps.append(Fraction(self.jobs[coming[0]].at_s) - now)
            step = min(steps)
            now += step
            for job, rate in rates.items():
                self.served[job] += rate * step
            self.settle(now)
            while coming and self.jobs[coming[0]].at_s == now:
                self.line.append(coming.pop(0))
                self.queues[0].append(self.line[-1])
        return [float(self.ended[index]) for index in range(len(self.jobs))]

    def left(self, job: int) -> Fraction:
        return Fraction(self.jobs[job].size) - self.served[job]

    def steps(self, job: int, rate: Fraction, rates: Rates) -> list[Fraction]:
        """Until the job ends, leaves its queue, or has received as much as one that it overtakes."""
        found = [self.left(job) / rate]
        if self.policy.name == "las_mq":
            upper = self.uppers[self.queue_of(job)]
            found += [(Fraction(upper) - self.served[job]) / rate] if upper < inf else []
        if self.policy.name == "las":
            found += [(self.served[other] - self.served[job]) / rate for other in self.line if other not in rates]
        return found

    def settle(self, now: Fraction) -> None:
        for job in [job for job in self.line if self.left(job) == 0]:
            self.ended[job] = now
            self.line.remove(job)
            self.queues[self.queue_of(job)].remove(job)
        for queue in range(self.policy.queues - 1):
            for job in [job for job in self.queues[queue] if self.served[job] == Fraction(self.uppers[queue])]:
                self.queues[queue].remove(job)
                self.queues[queue + 1].append(job)

    def queue_of(self, job: int) -> int:
        return next(queue for queue, jobs in self.queues.items() if job in jobs)

    def rates(self) -> Rates:
        one = Fraction(1)
        match self.policy.name:
            case "fifo":
                return {self.line[0]: one}
            case "srpt":
                return {min(self.line, key=self.left): one}
            case "fair":
                weights = {job: Fraction(self.jobs[job].weight) for job in self.line}
                return {job: weight / sum(weights.values()) for job, weight in weights.items()}
            case "las":
                least = min(self.served[job] for job in self.line)
                first = [job for job in self.line if self.served[job] == least]
                return {job: one / len(first) for job in first}
            case "las_mq":
                return self.queue_rates()

    def queue_rates(self) -> Rates:
        busy = [queue for queue, jobs in self.queues.items() if jobs]
        if self.policy.sharing == "strict":
            return {self.queues[busy[0]][0]: Fraction(1)}
        weights = {queue: 1 / Fraction(self.policy.step) ** queue for queue in busy}
        return {self.queues[queue][0]: weight / sum(weights.values()) for queue, weight in weights.items()}


def _ends(jobs: list[Job], policy: Policy) -> list[float]:
    return serve(jobs, discipline_of(policy))


def _mean_response_s(jobs: list[Job], ends: list[float]) -> float:
    return sum(end - job.at_s for job, end in zip(jobs, ends, strict=True)) / len(jobs)


@given(_WORKLOADS, _POLICIES)
def test_every_discipline_follows_its_definition(jobs: list[Job], policy: Policy) -> None:
    ours, theirs = _ends(jobs, policy), _Oracle(jobs, policy).run()
    if policy.name == "srpt":
        # Of two jobs with the same remainder either may go first: the times of ends are fixed, the job that ends is
        # not.
        ours, theirs = sorted(ours), sorted(theirs)
    assert ours == pytest.approx(theirs)


@given(_WORKLOADS, _POLICIES)
def test_work_is_conserved(jobs: list[Job], policy: Policy) -> None:
    """In any order, the server is busy at the same times: each busy period ends when it ends under any other."""
    ends = _ends(jobs, policy)
    free_at_s = 0.0
    order = sorted(jobs, key=lambda job: job.at_s)
    for job, following in zip(order, [*order[1:], None], strict=True):
        free_at_s = max(free_at_s, job.at_s) + job.size
        if following is None or following.at_s > free_at_s:
            assert max(end for end in ends if end <= free_at_s + 1e-6) == pytest.approx(free_at_s)
    assert all(end >= job.at_s + job.size - 1e-9 for job, end in zip(jobs, ends, strict=True))


@given(_WORKLOADS, _POLICIES)
def test_no_discipline_has_a_smaller_mean_response_time_than_srpt(jobs: list[Job], policy: Policy) -> None:
    best = _mean_response_s(jobs, _ends(jobs, Policy(name="srpt")))
    assert best <= _mean_response_s(jobs, _ends(jobs, policy)) + 1e-9


@given(_WORKLOADS)
def test_las_mq_with_one_queue_is_fifo(jobs: list[Job]) -> None:
    assert _ends(jobs, Policy(queues=1)) == pytest.approx(_ends(jobs, Policy(name="fifo")))


@given(st.integers(1, 30), _EIGHTHS, st.sampled_from(["fair", "las"]))
def test_equal_jobs_that_share_end_together(count: int, size: float, name: str) -> None:
    jobs = [Job(name="job", at_s=0.0, size=size)] * count
    assert _ends(jobs, Policy(name=name)) == pytest.approx([count * size] * count)  # type: ignore[arg-type]


@given(_WORKLOADS, _POLICIES, st.sampled_from([0.5, 3.0, 1e6]))
def test_a_faster_server_with_larger_jobs_is_the_same(jobs: list[Job], policy: Policy, rate: float) -> None:
    larger = [Job(name=job.name, at_s=job.at_s, size=job.size * rate, weight=job.weight) for job in jobs]
    thresholds = Policy(
        name=policy.name,
        queues=policy.queues,
        first_threshold=policy.first_threshold * rate,
        step=policy.step,
        sharing=policy.sharing,
    )

    assert sorted(serve(larger, discipline_of(thresholds, rate), rate_per_s=rate)) == pytest.approx(
        sorted(_ends(jobs, policy))
    )
