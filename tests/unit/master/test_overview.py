"""The cluster at a glance: the jobs that each user sees, a bounded document, the latest preemptions."""

from __future__ import annotations

from typing import Any

from master.core import events as e
from master.http_documents import Status
from master.overview import MOST_JOBS, MOST_NODES, MOST_PREEMPTIONS, Overview
from penstock.model.container import Ended, EndedBy
from penstock.wire.connection import to_wire
from penstock.wire.master_api import CommandEnded, JobUse
from penstock.wire.reservation_api import OnBehalf
from tests.unit.master.cluster_bed import job_row as job
from tests.unit.master.cluster_bed import load, master_status, node_row


def shown(overview: Overview, user: str, *, operator: bool = False) -> dict[str, Any]:
    said: dict[str, Any] = to_wire(overview.answer(OnBehalf(user=user, operator=operator, call="cluster_status")))
    return said["status"]


def ended(number: int, by: EndedBy = EndedBy.PREEMPTED, of: str = "j-1") -> e.Received:
    said = CommandEnded(job=of, task=f"t-{number}", origin="alpha", ended=Ended(by=by, reason="memory wanted"))
    return e.Received("beta", said)


def test_users_see_their_own_jobs_and_operators_all() -> None:
    jobs = {"j-1": job("eve"), "j-2": job("bob"), "j-3": job("eve", "waiting")}
    nodes = {"alpha": node_row(load=load(used_cores=1.0, jobs=[JobUse(job="j-2", service_s=1.0)]))}
    overview = Overview(lambda: master_status(nodes=nodes, jobs=jobs))
    mine = shown(overview, "eve")
    assert list(mine["jobs"]) == ["j-3", "j-1"]
    assert mine["more"] == {"nodes": 0, "jobs": 0, "jobs_of_others": 1}
    load_of = mine["nodes"]["alpha"]["load"]
    assert load_of["used_cores"] == 1.0 and "jobs" not in load_of
    assert mine["tasks"]["ready"] == 0
    assert not {"promised", "configuration"} & set(mine)
    assert shown(overview, "nobody")["jobs"] == {}
    everybody = shown(overview, "root", operator=True)
    assert set(everybody["jobs"]) == set(jobs)
    assert everybody["more"]["jobs_of_others"] == 0
    assert {"promised", "configuration"} <= set(everybody)


def test_a_large_cluster_is_cut_and_says_so() -> None:
    nodes = {f"n-{n}": node_row() for n in range(MOST_NODES + 7)}
    jobs = {f"j-{n}": job("eve") for n in range(MOST_JOBS + 3)} | {"j-waits": job("eve", "waiting")}
    said = shown(Overview(lambda: master_status(nodes=nodes, jobs=jobs)), "eve")
    assert (len(said["nodes"]), len(said["jobs"])) == (MOST_NODES, MOST_JOBS)
    assert said["more"] == {"nodes": 7, "jobs": 4, "jobs_of_others": 0}
    assert next(iter(said["jobs"])) == "j-waits"


def test_frequent_requests_cost_no_more() -> None:
    made: list[float] = []
    now = [100.0]

    def status() -> Status:
        made.append(now[0])
        return master_status(nodes={f"n-{len(made)}": node_row()})

    overview = Overview(status, lambda: now[0])
    seen = []
    for now[0] in (100.0, 100.5, 100.9, 101.0, 101.1, 105.0):
        seen += [*shown(overview, "eve")["nodes"]]
    assert made == [100.0, 101.0, 105.0]
    assert seen == ["n-1", "n-1", "n-1", "n-2", "n-2", "n-3"]


def test_the_latest_preemptions_are_remembered_and_nothing_else() -> None:
    jobs = {"j-1": job("eve"), "j-2": job("bob")}
    overview = Overview(lambda: master_status(jobs=jobs))
    overview.received(ended(0, EndedBy.EXIT), 1.0)
    overview.received(e.Answered("beta", 1, []), 2.0)
    for number in range(MOST_PREEMPTIONS + 5):
        overview.received(ended(number), 10.0 + number)
    overview.received(ended(99, of="j-2"), 50.0)
    rows = shown(overview, "root", operator=True)["preemptions"]
    assert len(rows) == MOST_PREEMPTIONS
    assert rows[-1] == {"at": 50.0, "node": "beta", "job": "j-2", "task": "t-99", "reason": "memory wanted"}
    assert [row["task"] for row in shown(overview, "bob")["preemptions"]] == ["t-99"]
    assert to_wire(overview.answer(OnBehalf(user="bob", operator=False, call="cluster_status")))
