"""The holdings of a job in an ordering's view: placed and reported work counts once."""

from __future__ import annotations

from master.core import events as e
from master.core.order import job_views, totals
from master.ordering import JobView
from penstock.wire.agent_api import Progress, StageProgress
from penstock.wire.master_api import JobUse
from tests.unit.master.cluster_bed import Bed, bed, task


def view(b: Bed) -> JobView:
    cluster = b.cluster
    total = totals(cluster.table)
    [found] = job_views([cluster.jobs["j"]], cluster.nodes, cluster.settings, cluster.history, total)
    return found


def test_slots_of_a_framework_that_schedules_its_own_tasks_are_its_holdings() -> None:
    b = bed("a", ordering="drf")
    b.job("a")
    b.serve(e.Received("a", Progress(job="j", stages=[StageProgress(stage="s", tasks=2)])))
    b.heartbeat("a", jobs=[JobUse(job="j", service_s=1.0, running=3)])
    seen = view(b)
    assert (seen.containers, seen.holds) == (3, (3.0, 0.0, 0.0, 0.0))
    assert (seen.needs, seen.wants) == (3, 3), "a running task is unfinished in spite of reports"


def test_tasks_of_a_stage_that_is_reported_and_sent_can_run_once() -> None:
    b = bed("a")
    b.job("a")
    b.serve(e.Received("a", Progress(job="j", stages=[StageProgress(stage="s", tasks=6)])))
    b.ready("a", task("t0"), task("t1"))
    assert (view(b).needs, view(b).wants) == (6, 2)
