"""The service that a node reports of a job is the slots that it held × time, for any events in any order."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from agent.core import Node
from penstock.model import MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion
from tests.fakes.node_bed import NodeBed
from tests.fakes.queues import make_queues

_JOBS = ("a", "b")
#: An event, its job, the time since the event before, and a number that chooses among monotasks.
_EVENTS = st.tuples(
    st.sampled_from(["submit", "hold", "small", "complete", "pass on", "cancel", "report", "leave"]),
    st.sampled_from(_JOBS),
    st.floats(0.0, 10.0),
    st.integers(0, 7),
)
_KINDS = (ResourceKind.CPU, ResourceKind.DISK, ResourceKind.NETWORK)


class _Bed:
    """Queues under test, and Σ slots × time by looking at how many slots each job holds before every event."""

    def __init__(self) -> None:
        self.queues = make_queues(
            2, jobs=dict.fromkeys(_JOBS, 0.0), network_bypass_bytes=10, disk_small_bytes=10, lease_s=1.0
        )
        self.attained = Node(NodeBed(cores=2).settings, self.queues).attained
        self.now = 0.0
        self.expected = dict.fromkeys(_JOBS, 0.0)
        self.told: dict[str, tuple[float, int]] = {}
        self._ids = 0

    def pass_time(self, seconds: float) -> None:
        for job in _JOBS:
            self.expected[job] += self.queues.job_counts(job)["running"] * seconds
        self.now += seconds

    def submit(self, job: str, which: int, input_bytes: int, *, running: bool = False) -> None:
        self._ids += 1
        spec = MonotaskSpec(id=self._ids, kind=_KINDS[which % 3], input_bytes=input_bytes, running=running)
        self.queues.submit(1, job, [spec], self.now)

    def live(self, job: str) -> list[int]:
        return [int(one) for one in self.queues._jobs[job].live.get(1, {})]

    def complete(self, job: str, which: int, *, passed_on: bool) -> None:
        live = self.queues._jobs[job].live.get(1, {})
        granted = [one for one in live.values() if one.state]
        if not granted:
            return
        ended = granted[which % len(granted)]
        waiting = [one.id for one in live.values() if not one.state and one.kind is ended.kind]
        then = waiting[0] if passed_on and waiting and ended.lease_until else None
        execution_s = (self.now - ended.granted_at) / 2 if which % 2 else None
        self.queues.complete(1, job, [Completion(id=ended.id, execution_s=execution_s, then=then)], self.now)

    def cancel(self, job: str, which: int) -> None:
        live = self.live(job)
        self.queues.cancel(1, job, live[which % len(live) : which % len(live) + 1] if live else [], self.now)

    def report(self) -> None:
        for use in self.attained.report(self.now):
            before, _ = self.told.get(use.job, (0.0, 0))
            assert use.service_s >= before, "a job with less service than before is taken to have started anew"
            self.told[use.job] = use.service_s, use.running


@given(st.lists(_EVENTS, max_size=60))
def test_service_is_slots_times_time(events: list[tuple[str, str, float, int]]) -> None:
    bed = _Bed()
    for what, job, later_s, which in events:
        bed.pass_time(later_s)
        match what:
            case "submit" | "hold" | "small":
                bed.submit(job, which, 5 if what == "small" else 100, running=what == "hold")
            case "complete" | "pass on":
                bed.complete(job, which, passed_on=what == "pass on")
            case "cancel":
                bed.cancel(job, which)
            case "leave":
                bed.queues.drop_session(1, [job], bed.now)
            case _:
                bed.report()
    bed.report()
    for job in _JOBS:
        service_s, running = bed.told[job]
        assert math.isclose(service_s, bed.expected[job], rel_tol=1e-9, abs_tol=1e-9)
        assert running == bed.queues.job_counts(job)["running"]
