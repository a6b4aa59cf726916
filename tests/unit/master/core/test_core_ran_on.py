"""The nodes that took commands of a job: they may have output of it, also when it has ended."""

from __future__ import annotations

from typing import Any

import pytest

from master.core import events as e
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from penstock.wire.job_end_api import JobAtEnd
from penstock.wire.jobs_api import ListJobs
from tests.unit.master.cluster_bed import EXIT, Bed, bed, command, job_state, placed_task, task

JOB = "a-1f2e3d4c-1"  # an id made by the agent of ``a``


def end(made: Bed, node: str, name: str, job: str = JOB, how: Ended = EXIT) -> None:
    made.serve(e.Received(node, api.CommandEnded(job=job, task=name, origin="a", ended=how)))


def ran_on_b_and_c(**settings: Any) -> Bed:
    """Return a master whose job of ``a`` had a command on ``b``, and has one on ``c``."""
    made = bed("a", "b", "c", **settings)
    made.job("a", JOB)
    made.ready("a", command("t", nodes=("b",)), command("u", nodes=("c",)), job=JOB)
    made.round()
    end(made, "b", "t")
    return made


def test_a_running_and_an_ended_job_name_them_and_so_does_the_record_for_the_next_master() -> None:
    made = ran_on_b_and_c()
    view = made.listed(JOB)
    assert (view.nodes, view.ran_on) == (["c"], ["b", "c"])
    end(made, "c", "u")
    made.serve(e.Received("a", api.JobEnded(job=JOB, done=True)))
    view = made.listed(JOB)
    assert (view.state, view.nodes, view.ran_on) == ("ended", [], ["b", "c"])
    kept = made.kept().jobs[JOB]
    assert kept is not None and kept.view.ran_on == ["b", "c"]
    assert [each.ran_on for each in made.cluster.listing.listed(ListJobs(), "u")] == [[]], "as in all long lists"


def test_a_node_without_a_command_of_the_job_has_no_output() -> None:
    made = bed("a", "b")
    made.refused = {"refused"}
    made.job("a", JOB)
    made.ready("a", task("own", nodes=("a",)), command("refused", nodes=("b",)), job=JOB)
    assert sorted(made.round()) == [("own", "a"), ("refused", "b")]
    view = made.listed(JOB)
    assert (view.nodes, view.ran_on) == (["a"], [])


def test_the_node_of_an_earlier_copy_has_its_output() -> None:
    made = bed("a", "b")
    made.job("a", JOB)
    made.ready("a", command("t", nodes=("b",)), job=JOB, opportunistic=True)
    made.round()
    end(made, "b", "t", how=Ended(by=EndedBy.PREEMPTED, reason="memory was wanted"))
    assert made.listed(JOB).ran_on == ["b"]


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("master.core.listing.MOST_NODES", 1)
    made = ran_on_b_and_c()
    made.serve(e.Received("a", api.JobEnded(job=JOB, done=True)))
    kept = made.kept().jobs[JOB]
    assert kept is not None and kept.view.ran_on == ["b"]


def test_a_restarted_master_learns_them_from_the_nodes_and_the_origin() -> None:
    """The command on ``b`` ended before the origin registered; that on ``c`` runs, and so does that on ``d``, away.
    The node ``e`` registered while it ran one that ended before the origin registered.
    """
    made = bed("b")
    end(made, "b", "t", job="j")
    made.node("e", placed=[placed_task("w", remaining=command("w").usage)])
    end(made, "e", "w", job="j")
    made.node("c", placed=[placed_task("u", remaining=command("u").usage)])
    awaited = [
        api.AwaitedTask(job="j", stage="s", request=command(name), node=node)
        for name, node in (("t", "b"), ("u", "c"), ("v", "d"), ("w", "e"))
    ]
    made.node("a", jobs=[job_state("j", admitted=True)], awaited=awaited)
    assert made.listed().ran_on == ["b", "c", "d", "e"]


def test_a_job_that_was_lost_with_its_origin_and_is_back_keeps_them() -> None:
    made = ran_on_b_and_c()
    end(made, "c", "u")
    made.serve(e.NodeAway("a"))
    for _ in range(5):
        made.round(4.0)
        made.heartbeat("b")
        made.heartbeat("c")
    assert made.listed(JOB).outcome == "lost"
    made.node("a", jobs=[job_state(JOB, admitted=True)])
    assert made.listed(JOB).ran_on == ["b", "c"]


@pytest.mark.parametrize("restarted", [False, True], ids=["the same master", "the next master"])
def test_a_job_that_ended_while_its_origin_had_no_link_keeps_them(restarted: bool) -> None:
    made = ran_on_b_and_c()
    end(made, "c", "u")
    made.serve(e.NodeAway("a"))
    made.node("a")
    if restarted:
        stored = [past for past in made.kept().jobs.values() if past is not None]
        made = Bed()
        made.serve(e.StateRestored({}, stored))
        made.node("a")
    at_end = JobAtEnd(name="j", user="u", submitted_at=0.0, ended_at=1.0, tasks_ended=2)
    made.serve(e.Received("a", api.JobEnded(job=JOB, done=True, at_end=at_end)))
    view = made.listed(JOB)
    assert (view.outcome, view.ran_on) == ("succeeded", ["b", "c"])
