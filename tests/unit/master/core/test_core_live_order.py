"""The order of jobs reaches the agents' queues: by few messages, and none where nothing changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.core import events as e
from master.core.priorities import renumbered
from penstock.model import KindAmounts
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress, StageProgress
from tests.unit.master.cluster_bed import Bed, bed, job_state, task

# ---------------------------------------------------------------- numbers


def test_one_that_moves_is_one_message() -> None:
    told = {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}
    assert renumbered(["d", "a", "b", "c"], told) == {"d": 5.0}
    assert renumbered(["b", "c", "d", "a"], told) == {"a": 0.0}
    assert renumbered(["a", "c", "b", "d"], told).keys() in ({"b"}, {"c"})


def test_where_numbers_leave_no_room_all_are_new() -> None:
    close = {"a": 2.0, "b": 2.0 - 1e-9, "c": 1.0}
    assert renumbered(["a", "b", "c"], close) == {"a": 3.0, "b": 2.0, "c": 1.0}


def test_a_job_that_was_moved_a_moment_ago_stays_until_later() -> None:
    told = {"a": 3.0, "b": 2.0, "c": 1.0}
    assert renumbered(["c", "a", "b"], told, fixed={"c"}) == {}
    assert renumbered(["c", "a", "b"], told, fixed={"a"}) == {"c": 4.0}


def test_new_jobs_get_places_between_those_that_have_one() -> None:
    told = {"a": 3.0, "b": 2.0, "x": -100.0, "y": -101.0, "z": -102.0}
    assert renumbered(["a", "b", "x", "y", "z"], told, fresh={"x", "y", "z"}) == {}
    after = told | renumbered(["z", "y", "a", "x", "b"], told, fixed={"a", "b"}, fresh={"x", "y", "z"})
    assert sorted(told, key=lambda job: -after[job]) == ["z", "y", "a", "x", "b"]
    assert (after["a"], after["b"]) == (3.0, 2.0)


@given(
    st.permutations("abcdefgh"),
    st.lists(st.integers(0, 9), min_size=8, max_size=8),
    st.sets(st.sampled_from("abcdefgh")),
    st.sets(st.sampled_from("abcdefgh")),
)
def test_all_are_in_order_but_the_fixed_that_are_passed_over(
    order: list[str], numbers: list[int], fixed: set[str], fresh: set[str]
) -> None:
    told = dict(zip("abcdefgh", map(float, numbers), strict=True))
    after = told | renumbered(order, told, fixed - fresh, fresh)
    passed_over = {job for job in fixed - fresh if after[job] == told[job]}
    in_line = [job for job in order if job not in passed_over]
    assert sorted(in_line, key=lambda job: -after[job]) == in_line


@given(st.lists(st.sampled_from("abcdefgh"), unique=True), st.lists(st.integers(0, 9), min_size=8, max_size=8))
def test_afterwards_the_larger_number_goes_first(order: list[str], numbers: list[int]) -> None:
    told = dict(zip("abcdefgh", map(float, numbers), strict=True))
    after = told | renumbered(order, told)
    assert sorted(order, key=lambda job: -after[job]) == order
    assert len({after[job] for job in order}) == len(order)
    assert renumbered(order, after) == {}


# ---------------------------------------------------------------- in the cluster


def priorities(b: Bed, since: int = 0) -> list[tuple[str, str]]:
    return [(node, d.job) for node, d in b.sent[since:] if isinstance(d, api.SetPriority)]


def progress(b: Bed, job: str, left: int) -> None:
    stage = StageProgress(stage="s", tasks=left, input_bytes=left * 10**6)
    b.serve(api_said("a", job, [stage]))


def api_said(node: str, job: str, stages: list[StageProgress]) -> e.Received:
    return e.Received(node, Progress(job=job, stages=stages))


def use(b: Bed, node: str, **service_s: float) -> None:
    jobs = [api.JobUse(job=job, service_s=service, running=1) for job, service in service_s.items()]
    b.heartbeat(node, jobs=jobs)


def test_srjf_moves_the_job_that_has_less_left_to_the_front() -> None:
    b = bed("a", ordering="srjf")
    b.job("a", "long", at=1.0)
    b.job("a", "short", at=2.0)
    since = len(b.sent)
    b.now = 5.0
    progress(b, "long", 100)
    progress(b, "short", 3)
    b.now = 7.0
    b.heartbeat("a")
    assert priorities(b, since) in ([("a", "long")], [("a", "short")]), "one message is enough"
    jobs = b.cluster.jobs
    assert jobs["short"].priority > jobs["long"].priority
    assert "srjf: score" in b.sent[-1][1].why
    since = len(b.sent)
    for second in range(10):
        b.now = 10.0 + second
        progress(b, "long", 100 - second)
        b.heartbeat("a")
    assert priorities(b, since) == [], "scores changed, the order did not"


def test_a_job_is_sent_at_most_once_a_heartbeat() -> None:
    b = bed("a", ordering="srjf", heartbeat_s=1.0)
    b.job("a", "x", at=1.0)
    b.job("a", "y", at=2.0)
    since = len(b.sent)
    for tenth in range(100):  # the order turns faster than a heartbeat
        b.now = 5.0 + tenth / 10
        progress(b, "x", 10 if tenth // 7 % 2 else 1)
        progress(b, "y", 1 if tenth // 7 % 2 else 10)
        b.heartbeat("a")
    told = [job for _, job in priorities(b, since)]
    assert told
    assert max(told.count("x"), told.count("y")) <= 11


def learnt(b: Bed, name: str, service_s: float) -> None:
    """A job of this name has ended, having received so much."""
    b.job("a", name, name=name)
    b.ready("a", task("t"), job=name)
    b.round()
    b.serve(e.Received("a", api.TasksDone(job=name, tasks=["t"])))
    b.serve(e.Received("a", api.JobEnded(job=name, use=api.JobUse(job=name, service_s=service_s, last=True))))


def in_place(b: Bed) -> list[str]:
    """The jobs as agents have them in their queues."""
    told = {job: priority for job, each in b.cluster.jobs.items() for priority in each.hosts.values()}
    return sorted(told, key=lambda job: -(told[job] or 0.0))


def test_jobs_that_come_at_one_moment_are_in_order_within_an_interval() -> None:
    b = bed("a", ordering="gittins", interval_s=0.1, heartbeat_s=1.0)
    for name, size in (("small", 1.0), ("large", 100.0)):
        for _ in range(3):
            learnt(b, name, size)
    b.now = 10.0
    for number, name in enumerate(["large", "large", "small", "large", "small", "small"]):
        b.now += 0.001
        b.job("a", f"{name}-{number}", at=float(number), name=name)
    assert b.cluster.wants_round, "nothing else happens that would have the order looked at"
    b.round(0.1)
    assert not b.cluster.wants_round
    assert in_place(b) == ["small-2", "small-4", "small-5", "large-0", "large-1", "large-3"]
    use(b, "a", **{"large-0": 0.5, "small-2": 0.5})
    b.now += 0.1
    b.job("a", "small-6", at=6.0, name="small")
    b.round(0.1)
    assert in_place(b) == b.cluster.order.rank(b.now).order()


def test_a_new_job_is_ranked_by_the_service_that_its_node_reports_right_after_it_came() -> None:
    """By the heartbeat before, a second old, the others had received as little as it."""
    b = bed("a", ordering="gittins", interval_s=0.1, heartbeat_s=1.0)
    for name in ("x", "y"):
        b.job("a", name, at=1.0, name=name)
    use(b, "a", x=0.1, y=0.1)
    b.round(0.1)
    b.now += 0.9
    b.job("a", "new", at=2.0, name="new")
    b.round(0.1)
    assert in_place(b) == ["x", "y", "new"]
    b.now += 0.05
    use(b, "a", x=0.9, y=0.8, new=0.01)  # it has begun already
    assert b.cluster.wants_round or in_place(b)[0] == "new"
    b.round(0.1)
    assert in_place(b) == ["new", "x", "y"]


def test_where_no_job_has_come_words_of_service_wait_for_the_next_order() -> None:
    """In a large cluster jobs come all the time, and each order costs milliseconds."""
    b = bed("a", "b", ordering="las", interval_s=0.1, heartbeat_s=1.0)
    b.job("b", "old", at=1.0)
    b.round(5.0)
    b.job("a", "new", at=2.0)
    b.round(0.2)
    b.now += 0.2
    use(b, "b", old=1.0)
    assert not b.cluster.wants_round and b.cluster.dues.ordered_at < b.now
    use(b, "a", new=1.0)
    assert b.cluster.dues.ordered_at == b.now


def test_a_job_that_was_moved_a_moment_ago_does_not_stay_before_a_job_that_has_just_come() -> None:
    b = bed("a", ordering="las", interval_s=0.1, heartbeat_s=1.0)
    for name in ("x", "y"):
        b.job("a", name, at=1.0)
    use(b, "a", x=2.0, y=1.0)
    b.round(0.1)
    b.now += 5.0
    use(b, "a", x=2.0, y=3.0)
    assert in_place(b) == ["x", "y"], "x was moved"
    b.job("a", "new", at=2.0)
    b.round(0.1)
    b.now += 0.1
    use(b, "a", x=2.2, y=3.0, new=0.1)
    b.round(0.1)
    assert in_place(b) == ["new", "x", "y"]
    b.now += 0.1
    use(b, "a", x=3.4, y=3.1, new=0.1)
    b.round(0.1)
    assert in_place(b) == ["new", "y", "x"], "as it came a moment ago, each word of service counts"


def test_the_order_follows_each_heartbeat_with_service() -> None:
    b = bed("a", ordering="las", interval_s=0.1, heartbeat_s=1.0)
    for name in ("x", "y"):
        b.job("a", name, at=1.0)
    b.round(0.1)
    service = {"x": 0.0, "y": 0.0}
    for second in range(10):  # each heartbeat a little early: no timer of the master's own decides
        b.now += 0.99
        service["x" if second % 2 else "y"] += 1.5
        use(b, "a", **service)
        assert in_place(b) == sorted(service, key=lambda job: (service[job], job))


def test_a_size_learnt_from_a_job_moves_those_of_its_kind_at_once() -> None:
    b = bed("a", ordering="gittins", interval_s=0.1, heartbeat_s=1.0)
    learnt(b, "large", 100.0)
    b.now = 10.0
    b.job("a", "first", at=1.0, name="tiny")
    b.job("a", "second", at=2.0, name="large")
    b.round(0.1)
    before = in_place(b)
    for _ in range(3):
        learnt(b, "tiny", 0.1 if before == ["second", "first"] else 10_000.0)
    b.round(0.1)
    assert in_place(b) == before[::-1] == b.cluster.order.rank(b.now).order()


def test_jobs_that_come_and_go_send_no_messages_about_changes_by_service() -> None:
    b = bed("a", ordering="las", interval_s=0.1, heartbeat_s=1.0)
    for name in ("x", "y"):
        b.job("a", name, at=1.0)
    b.round(0.1)
    b.now = 10.0
    since, service = len(b.sent), {"x": 0.0, "y": 0.0}
    for tenth in range(100):  # the order of x and y turns with each heartbeat, and another job comes in between
        service["x" if tenth % 2 else "y"] += 0.2
        use(b, "a", **service)
        b.job("a", f"z{tenth}", at=2.0)
        b.round(0.1)
        b.serve(e.Received("a", api.JobEnded(job=f"z{tenth}")))
    told = [job for _, job in priorities(b, since)]
    assert max(told.count("x"), told.count("y")) <= 11


def test_service_from_the_nodes_sinks_a_job() -> None:
    b = bed("a", "b", ordering="las_mq", las_mq_first_threshold_container_s=10.0)
    b.job("a", "j", at=1.0)
    b.job("a", "k", at=2.0)
    b.serve(e.Received("b", api.JoinJob(job="j", user="u")))
    progress(b, "j", 5)
    progress(b, "k", 50)
    b.now = 3.0
    b.heartbeat("a")
    assert b.cluster.jobs["j"].priority > b.cluster.jobs["k"].priority, "the same queue: the fewer tasks first"
    use(b, "a", j=6.0)
    use(b, "b", j=3.0)
    assert b.cluster.jobs["j"].work.service_s == 9.0
    b.now = 4.5
    use(b, "b", j=7.0)
    assert b.cluster.jobs["j"].work.service_s == 13.0
    assert b.cluster.jobs["j"].priority < b.cluster.jobs["k"].priority
    told = [
        node
        for node, d in b.decisions_of(api.SetPriority)
        if d.job == "j" and d.priority == b.cluster.jobs["j"].priority
    ]
    moved = b.cluster.jobs["k"].hosts == {"a": b.cluster.jobs["k"].priority}
    assert set(told) == {"a", "b"} or moved, "every node that serves a moved job knows it"


def test_a_node_that_starts_anew_takes_nothing_away() -> None:
    b = bed("a", ordering="las")
    b.job("a", "j", at=1.0)
    use(b, "a", j=6.0)
    use(b, "a", j=1.0)  # its agent was restarted
    assert b.cluster.jobs["j"].work.service_s == 7.0
    assert b.cluster.jobs["j"].work.slots == 1


def test_a_job_that_recurs_is_known_before_its_first_report() -> None:
    b = bed("a", ordering="srjf")
    for name, size in (("big", 500), ("small", 5)):
        b.job("a", name, at=1.0, name=name)
        b.ready("a", task("t", cpu=size), job=name)
        b.round()
        b.serve(e.Received("a", api.TasksDone(job=name, tasks=["t"])))
        b.serve(e.Received("a", api.JobEnded(job=name)))
    b.job("a", "j1", at=2.0, name="big")
    b.job("a", "j2", at=3.0, name="small")
    assert b.cluster.order.rank(b.now).order() == ["j2", "j1"]
    assert b.cluster.history.of(("u", "big")).work == (500e6, 0.0, 0.0)  # type: ignore[union-attr]


def test_a_returning_node_learns_of_moves_meanwhile() -> None:
    b = bed("a", "b", ordering="srjf")
    b.job("a", "long", at=1.0)
    b.job("b", "short", at=2.0)
    b.serve(e.NodeAway("a"))
    b.serve(api_said("b", "short", [StageProgress(stage="s", tasks=1, input_bytes=1)]))
    b.cluster.jobs["long"].work.report([StageProgress(stage="s", tasks=9, input_bytes=10**9)])
    b.now = 3.0
    b.heartbeat("b")
    jobs = b.cluster.jobs
    assert jobs["short"].priority > jobs["long"].priority
    b.node("a", jobs=[job_state("long", at=1.0, priority=-1.0, admitted=True)])
    assert jobs["long"].hosts["a"] == jobs["long"].priority


@pytest.mark.parametrize("ordering", ["ejf", "fifo"])
def test_by_submission_nothing_ever_moves(ordering: str) -> None:
    b = bed("a", ordering=ordering)
    for at in range(5):
        b.job("a", f"j{at}", at=float(at))
    since = len(b.sent)
    for second in range(5):
        b.now = 10.0 + second
        b.heartbeat("a", pending=KindAmounts(cpu=float(second)))
    assert priorities(b, since) == []
