"""A job is cancelled at the master: the nodes that get the message, and the records that are kept."""

from __future__ import annotations

import pytest

from master.core import events as e
from master.core import stored_state
from master.core.finished_jobs import FinishedJob, FinishedJobs
from master.core.instructions import Keep
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress, StageProgress
from penstock.wire.errors import RpcError
from penstock.wire.jobs_api import JobView, ListJobs
from tests.unit.master.cluster_bed import EXIT, Bed, bed, command, job_state, load, task


def running() -> Bed:
    """Return a job of a with a command here, one there, a framework's task, and one that no node can take."""
    made = bed("a", "b")
    made.job("a")
    made.ready(
        "a", command("here", nodes=("a",)), command("there", nodes=("b",)), task("own", nodes=("a",)),
        task("waits", nodes=("nowhere",)),
    )  # fmt: skip
    assert sorted(made.round()) == [("here", "a"), ("own", "a"), ("there", "b")]
    return made


def ended(made: Bed, node: str, name: str, how: Ended) -> None:
    made.serve(e.Received(node, api.CommandEnded(job="j", task=name, origin="a", ended=how)))


def test_its_nodes_get_the_message_first_and_everything_of_it_is_withdrawn() -> None:
    made = running()
    said = made.serve(e.CancelRequested("j", "ann"))
    cancels = [(node, d.by) for node, d in said if isinstance(d, api.CancelJob)]
    assert cancels == [("a", "ann"), ("b", "ann")]
    of_a = [type(decision) for node, decision in said if node == "a"]
    assert of_a[0] is api.CancelJob, "before it hears that the tasks ended"
    withdrawn = {(node, d.task, d.why) for node, d in said if isinstance(d, api.Withdraw)}
    assert withdrawn == {
        (node, name, "cancelled by ann") for node, name in (("a", "here"), ("a", "own"), ("b", "there"))
    }
    view = made.listed()
    assert (view.state, view.tasks_ready, view.tasks_running) == ("cancelling", 0, 2)
    made.serve(e.Received("a", api.JobEnded(job="j", why="cancelled by ann")))
    view = made.listed()
    assert (view.state, view.outcome, view.nodes) == ("ending", "cancelled", ["a", "b"]), (
        "its commands are being killed"
    )
    killed = Ended(by=EndedBy.CANCELLED, reason="cancelled by ann")
    ended(made, "a", "here", killed)
    ended(made, "b", "there", killed)
    view = made.listed()
    assert (view.state, view.why, view.nodes) == ("ended", "cancelled by ann", [])


def test_its_size_is_not_taken_for_that_of_a_whole_job() -> None:
    made = bed("a", ordering="gittins")
    made.job("a")
    made.serve(e.CancelRequested("j", "ann"))
    use = api.JobUse(job="j", service_s=5.0, last=True)
    made.serve(e.Received("a", api.JobEnded(job="j", why="cancelled by ann", use=use)))
    assert made.listed().outcome == "cancelled"
    assert made.cluster.sizes.count("u", "j")[0] == 0


def test_messages_of_its_origin_meanwhile_start_nothing() -> None:
    made = running()
    made.serve(e.CancelRequested("j", "ann"))
    made.ready("a", command("late"))
    assert made.round() == []
    told = {d.task: d.ended for node, d in made.decisions_of(api.TellEnded)}
    assert told["late"] == Ended(by=EndedBy.CANCELLED, reason="cancelled by ann")
    made.job("a", "other", memory=900 * 10**6)
    assert [d.job for _, d in made.decisions_of(api.AdmitJob)] == ["j", "other"], "its reserved resources are free"
    with_refusal = api.JoinJob(job="j", user="u")
    try:
        made.serve(e.Received("b", with_refusal))
    except RpcError as error:
        assert "was cancelled by ann" in str(error) and error.body.cancelled_by == "ann"
    else:
        raise AssertionError("b could join a job that was cancelled")


def test_an_origin_that_was_away_gets_it_when_it_is_back_also_if_it_was_lost() -> None:
    for rounds in (1, 5):
        made = running()
        made.serve(e.NodeAway("a"))
        made.serve(e.CancelRequested("j", "ann"))
        for _ in range(rounds):
            made.round(4.0)
            made.heartbeat("b")
        assert ("j" in made.cluster.jobs) == (rounds == 1)
        made.node("a", jobs=[job_state("j", admitted=True)])
        assert [d.by for node, d in made.decisions_of(api.CancelJob) if node == "a"] == ["ann"]
        assert made.listed().state == "cancelling"
        made.serve(e.Received("a", api.JobEnded(job="j")))
        assert "j" not in made.cluster.jobs


def test_a_host_that_only_serves_the_job_gets_it_when_it_is_back() -> None:
    made = running()
    made.serve(e.NodeAway("b"))
    made.serve(e.CancelRequested("j", "ann"))
    made.serve(e.Received("a", api.JobEnded(job="j")))
    made.node("b", load=load(jobs=[api.JobUse(job="j", service_s=1.0, running=1)]))
    assert [node for node, _ in made.decisions_of(api.CancelJob)] == ["a", "b"]


def test_the_first_user_who_cancels_is_named_and_an_unknown_job_belongs_to_none() -> None:
    made = running()
    made.serve(e.CancelRequested("j", "ann"))
    made.serve(e.CancelRequested("j", "bob"))
    assert made.cluster.jobs["j"].cancelled_by == "ann"
    assert made.serve(e.CancelRequested("nobody-1", "ann")) == []


def test_a_job_that_was_left_in_order_succeeded_despite_its_last_progress() -> None:
    made = bed("a")
    for name, end in (
        ("left", api.JobEnded(job="left", done=True)),
        ("own", api.JobEnded(job="own", done=True, merged_into="left")),
    ):
        made.job("a", name)
        made.serve(e.Received("a", Progress(job=name, stages=[StageProgress(stage="map", tasks=9, done=2)])))
        made.serve(e.Received("a", end))
    assert made.cluster.past.get("own") is None, "its work went on in another job"
    past = made.cluster.past.get("left")
    assert past is not None
    assert (past.view.outcome, past.view.why) == ("succeeded", "")


def test_how_jobs_ended() -> None:
    made = bed("a")
    outcomes = {}
    for name, ends, said in (
        ("good", {"t": EXIT}, ""),
        ("bad", {"t": EXIT, "u": Ended(by=EndedBy.EXIT, exit_status=3)}, ""),
        ("given-up", {"t": Ended(by=EndedBy.CANCELLED)}, ""),
        ("left", {"t": None}, "its client x disconnected"),
        ("stopped", {"t": None}, ""),
    ):
        made.job("a", name)
        made.ready("a", *(command(each) for each in ends), job=name)
        made.round()
        for each, how in ends.items():
            if how is not None:
                made.serve(e.Received("a", api.CommandEnded(job=name, task=each, origin="a", ended=how)))
        made.serve(e.Received("a", api.JobEnded(job=name, why=said)))
        past = made.cluster.past.get(name)
        assert past is not None
        outcomes[name] = (past.view.outcome, past.view.why)
    assert outcomes == {
        "good": ("succeeded", ""),
        "bad": ("failed", "1 task failed; first u: exit status 3"),
        "given-up": ("cancelled", "its framework cancelled 1 of its tasks"),
        "left": ("disconnected", "its client x disconnected"),
        "stopped": ("cancelled", "its framework ended it before it was done"),
    }
    made.job("a", "began")
    made.serve(e.Received("a", api.JobEnded(job="began", why="its client x disconnected")))
    began = made.listed("began")
    assert (began.outcome, began.why) == ("disconnected", "its client x disconnected")
    made.job("a", "gated")
    made.heartbeat("a", jobs=[api.JobUse(job="gated", service_s=1.0)])
    made.serve(e.Received("a", api.JobEnded(job="gated", why="its client x disconnected")))
    assert made.listed("gated").outcome == "succeeded", "it has worked, and announced nothing"
    made.job("a", "refused")
    made.serve(e.Received("a", api.JobEnded(job="refused", failed="2 tasks refused; first t: too large")))
    refused = made.listed("refused")
    assert (refused.outcome, refused.why) == ("failed", "2 tasks refused; first t: too large")
    made.job("a", "gone")
    made.serve(e.NodeAway("a"))
    made.round(100.0)
    gone = made.cluster.past.get("gone")
    assert gone is not None
    assert (gone.view.outcome, gone.view.why) == ("lost", "node a was away for more than 10 s")
    assert gone.view.ended_at == made.now


def test_stages_are_as_far_as_the_latest_report() -> None:
    made = bed("a")
    made.job("a")
    told = [
        StageProgress(stage="s", tasks=4, done=0),
        StageProgress(stage="later", tasks=2, after=["s"]),
        StageProgress(stage="before", tasks=1, done=1, skipped=1),
    ]
    made.serve(e.Received("a", api.Progress(job="j", stages=told)))
    made.ready("a", command("t1"), command("t2"))
    made.round()
    made.serve(e.Received("a", api.CommandEnded(job="j", task="t1", origin="a", ended=EXIT)))
    view = made.listed()
    assert [(stage.stage, stage.tasks, stage.done, stage.skipped) for stage in view.progress] == [
        ("s", 4, 1, 0),
        ("later", 2, 0, 0),
        ("before", 1, 1, 1),
    ]
    assert (view.stages, view.stages_done, view.tasks_waiting, view.tasks_running, view.tasks_done) == (3, 1, 4, 1, 2)
    assert view.tasks_skipped == 1
    [listed_one] = made.cluster.listing.listed(ListJobs(), "u")
    assert listed_one.progress == []
    assert made.cluster.listing.listed(ListJobs(), "somebody-else") == []


def test_a_stage_reported_with_more_done_tasks_than_it_has_shows_no_negative_number() -> None:
    made = bed("a")
    made.job("a")
    told = [StageProgress(stage="s", tasks=2, done=4, skipped=3)]
    made.serve(e.Received("a", api.Progress(job="j", stages=told)))
    assert [(stage.tasks, stage.done, stage.skipped) for stage in made.listed().progress] == [(2, 2, 2)]


def past(job: str, user: str) -> FinishedJob:
    return FinishedJob(JobView(job=job, name="n", user=user, origin="a", state="ended", submitted_at=0.0, ended_at=1.0))


def test_the_latest_of_each_user_are_remembered_and_not_too_many_in_all() -> None:
    jobs = FinishedJobs(most_of_a_user=2, most=5)
    for number in range(4):
        jobs.add(past(f"e{number}", "eve"))
    assert [each.view.job for each in jobs] == ["e2", "e3"]
    for number in range(4):
        jobs.add(past(f"m{number}", f"user{number}"))
    assert [each.view.job for each in jobs] == ["e3", "m0", "m1", "m2", "m3"], "the oldest of all went"
    jobs.add(past("m0", "user0"))
    jobs.drop("m1")
    jobs.drop("never-there")
    assert [each.view.job for each in jobs] == ["e3", "m2", "m3", "m0"]
    assert jobs.get("m1") is None


def test_how_jobs_ended_is_written_down_and_known_to_the_next_master(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bed("a")
    for job in ("one", "two", "three"):
        b.job("a", job)
        b.serve(e.Received("a", api.JobEnded(job=job)))
    b.job("a", "two")  # it is there after all
    written = b.kept().jobs
    assert list(written) == ["one", "two", "three"]
    monkeypatch.setattr(stored_state, "FinishedJobs", lambda: FinishedJobs(most=2))
    fresh = Bed()
    fresh.serve(e.StateRestored({}, [past for past in written.values() if past is not None]))
    assert [past.view.job for past in fresh.cluster.past] == ["two", "three"]
    assert fresh.other == [Keep({}, {"one": None})], "records without room are dropped there, too"
    assert fresh.listed("three") == b.listed("three")


def test_a_job_that_is_there_after_all_is_no_longer_written_down_as_ended() -> None:
    b = bed("a")
    b.job("a")
    b.serve(e.Received("a", api.JobEnded(job="j")))
    fresh = Bed()
    fresh.serve(e.StateRestored({}, list(b.cluster.past)))
    fresh.node("a", jobs=[job_state("j")])
    assert [each.jobs for each in fresh.other if isinstance(each, Keep)] == [{"j": None}]
