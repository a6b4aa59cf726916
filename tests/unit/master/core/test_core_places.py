"""The place of jobs as people see it: in the list of jobs, in the status, in the explanation."""

from __future__ import annotations

import msgspec
import pytest

from master.core import events as e
from master.explain.why import JobExplainer
from master.ordering import NAMES
from master.status import status_document
from penstock.wire import master_api as api
from penstock.wire.cluster_api import NodeRanks
from penstock.wire.jobs_api import ListJobs
from tests.unit.master.cluster_bed import Bed, bed, command, job_state


def two_jobs(ordering: str = "las") -> Bed:
    """Of a user; the second has received less."""
    b = bed("a", "b", ordering=ordering)
    for name, at in (("one", 1.0), ("two", 2.0)):
        b.job("a", name, at=at, user="ann")
        b.ready("a", command("t"), job=name)
    b.round()
    serve(b, one=5.0, two=2.0)
    b.round(after_s=2.0)
    return b


def serve(b: Bed, **service_s: float) -> None:
    b.heartbeat("a", jobs=[api.JobUse(job=job, service_s=used_s) for job, used_s in service_s.items()])


@pytest.mark.parametrize("ordering", NAMES)
def test_the_list_and_the_status_agree_with_the_explanation(ordering: str) -> None:
    b = two_jobs(ordering)
    for job in ("one", "two"):
        said = JobExplainer.of(b.cluster).document(job, b.now)
        one, row = b.listed(job), status_document(b.cluster, b.now).jobs[job]
        assert (one.rank, one.of, one.reason) == (said.place, said.of, said.reason)
        assert (row.rank, row.reason, row.queue) == (one.rank, one.reason, one.queue)
        assert (one.expected_left_s, one.known_jobs) == (said.expected_left_s, said.known_jobs)
        assert said.reason in said.sentence
        msgspec.json.encode([said, row, one])
    assert sorted(b.listed(job).rank for job in ("one", "two")) == [1, 2]


def test_ranks_follow_the_service() -> None:
    b = two_jobs()
    assert [
        (each.job, each.rank, each.service_container_s) for each in b.cluster.listing.listed(ListJobs(), "ann")
    ] == [("one", 2, 5.0), ("two", 1, 2.0)]
    serve(b, two=9.0)
    b.round(after_s=2.0)
    assert (b.listed("one").rank, b.listed("two").rank) == (1, 2)


@pytest.mark.parametrize("ordering", ["fair", "las_mq"])
def test_to_look_changes_nothing(ordering: str) -> None:
    """These remember the service at the last request for the order."""
    seen = []
    for looks in (0, 50):
        b = two_jobs(ordering)
        listed = [b.listed(job) for job in ("one", "two")]
        serve(b, one=7.0, two=9.0)
        for _ in range(looks):
            b.cluster.listing.listed(ListJobs(), None)
            status_document(b.cluster, b.now)
            JobExplainer.of(b.cluster).document("one", b.now)
        assert [(one.rank, one.reason) for one in listed] == [
            (one.rank, one.reason) for one in map(b.listed, ("one", "two"))
        ]
        serve(b, one=8.0, two=9.0)
        order = b.cluster.order.rank(b.now).order()
        seen.append((order, vars(b.cluster.order.ordering)["_turns"].due))
    assert seen[0] == seen[1]


def test_one_that_is_over_or_has_just_come_has_no_place() -> None:
    b = two_jobs()
    b.serve(e.Received("a", api.JobEnded(job="one", done=True)))
    assert (b.listed("one").rank, b.listed("one").of, b.listed("one").reason) == (0, 0, "")
    b.job("a", "three", user="ann")
    assert b.listed("three").rank == 0
    b.round()
    assert (b.listed("three").rank, b.listed("three").of) == (1, 2)


# ---------------------------------------------------------------- ranks on the nodes


def ranks(*jobs: str) -> NodeRanks:
    return NodeRanks(jobs=[(job, 176 // 16**rank or 1) for rank, job in enumerate(jobs)], of=len(jobs))


def test_nodes_reports_of_ranks_are_shown_with_the_job() -> None:
    b = two_jobs()
    b.heartbeat("a", ranks=ranks("two", "c-1-1", "one"))
    b.heartbeat("b", ranks=ranks("two"))
    [on_a] = b.listed("one").ranks
    assert (on_a.node, on_a.rank, on_a.of, on_a.weight, on_a.before) == ("a", 3, 3, 1, ["two", "c-1-1"])
    assert on_a.service_container_s == 5.0
    assert [(each.node, each.rank) for each in b.listed("two").ranks] == [("a", 1), ("b", 1)]
    said = JobExplainer.of(b.cluster).document("one", b.now)
    assert said.sentence.endswith(
        "; before it two (two); on a it is third of 3 after two (two) and container c-1-1 of no job."
    )
    assert said.ranks == [on_a]
    assert b.cluster.listing.listed(ListJobs(), None)[0].ranks == [], "a list of many has them not"


def test_they_hold_until_others_are_sent_and_not_over_a_new_connection() -> None:
    b = two_jobs()
    b.heartbeat("a", ranks=ranks("one"))
    b.heartbeat("a")
    assert [each.rank for each in b.listed("one").ranks] == [1]
    b.heartbeat("a", ranks=ranks("two", "one"))
    assert [each.rank for each in b.listed("one").ranks] == [2]
    b.node("a", jobs=[job_state("one", at=1.0, user="ann")])
    assert b.listed("one").ranks == []


def test_the_status_of_a_node_names_no_jobs_of_others() -> None:
    b = two_jobs()
    b.heartbeat("a", ranks=ranks("two", "one"))
    assert status_document(b.cluster, b.now).nodes["a"].load.ranks is None


def test_names_of_other_users_jobs_are_not_shown() -> None:
    b = two_jobs()
    b.job("a", "bobs", at=0.5, user="bob", name="secret")
    b.ready("a", command("t"), job="bobs")
    b.round()
    said = JobExplainer.of(b.cluster).document("one", b.now).sentence
    assert "bobs" in said and "secret" not in said
