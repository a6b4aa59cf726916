"""A job's service up to its end is learnt exactly, and once: its nodes report the last of it after its end."""

from __future__ import annotations

import pytest

from master.core import events as e
from master.ordering.sizes import cell_of
from penstock.wire import master_api as api
from penstock.wire.cluster_api import CommandUse
from penstock.wire.job_end_api import JobAtEnd
from tests.unit.master.cluster_bed import EXIT, Bed, bed, command, job_state, load, task


def learnt(made: Bed) -> list[int]:
    """Return the cells of the learnt jobs, as far as none was dropped."""
    [known] = made.cluster.sizes.of([("u", "j")])[:1] or [None]
    return [] if known is None else [cell for cell, count in known.cells.items() for _ in range(round(count))]


def listed_s(made: Bed) -> float:
    view = made.listed()
    assert view.state == "ended"
    return view.service_container_s


def ran(*nodes: str, heartbeat_s: float = 1.0) -> Bed:
    """Return a job of the first node with ended commands, one on each node."""
    made = bed(*nodes, ordering="gittins", heartbeat_s=heartbeat_s)
    made.job(nodes[0])
    for node in nodes:
        made.ready(nodes[0], command(f"t-{node}", nodes=(node,)))
        made.round()
        made.serve(e.Received(node, api.CommandEnded(job="j", task=f"t-{node}", origin=nodes[0], ended=EXIT)))
    return made


def use(service_s: float, *, last: bool = True) -> api.JobUse:
    return api.JobUse(job="j", service_s=service_s, last=last)


def test_the_end_of_a_job_carries_its_service_at_its_origin() -> None:
    made = ran("a")
    made.heartbeat("a", jobs=[use(0.1, last=False)])
    made.serve(e.Received("a", api.JobEnded(job="j", use=use(3.5))))
    assert learnt(made) == [cell_of(3.5)], "nothing more is to come: it is learnt at once"
    assert listed_s(made) == 3.5


def test_other_nodes_report_their_last_with_a_heartbeat() -> None:
    made = ran("a", "b", "c")
    made.heartbeat("b", jobs=[use(10.0)])
    made.serve(e.Received("a", api.JobEnded(job="j", use=use(3.0))))
    assert learnt(made) == []
    assert listed_s(made) == 13.0, "as far as is known"
    made.heartbeat("c", jobs=[use(20.0, last=False)])
    assert learnt(made) == []
    made.heartbeat("c", jobs=[use(27.0)])
    assert learnt(made) == [cell_of(40.0)]
    assert listed_s(made) == 40.0
    for node in ("b", "c"):
        made.heartbeat(node, jobs=[use(30.0)])
    made.now += 10.0
    made.round()
    assert (learnt(made), listed_s(made)) == ([cell_of(40.0)], 40.0), "once"


def test_containers_at_the_origin_that_outlive_the_job_are_waited_for() -> None:
    made = ran("a")
    made.serve(e.Received("a", api.JobEnded(job="j", use=use(3.0, last=False))))
    assert learnt(made) == []
    made.heartbeat("a", jobs=[use(5.0)])
    assert learnt(made) == [cell_of(5.0)]


@pytest.mark.parametrize("how", ["silent", "lost"])
def test_a_node_that_does_not_report_its_last_is_not_waited_for_for_long(how: str) -> None:
    made = ran("a", "b", heartbeat_s=60.0 if how == "lost" else 1.0)
    made.heartbeat("b", jobs=[use(2.0, last=False)])
    made.serve(e.Received("a", api.JobEnded(job="j", use=use(3.0))))
    if how == "lost":
        made.serve(e.NodeAway("b"))
        made.now += made.cluster.settings.node_timeout_s + 0.1
        made.heartbeat("a")
    else:
        made.now += 2 * made.cluster.settings.heartbeat_s
        made.round()
        assert learnt(made) == []
        made.now += 2 * made.cluster.settings.heartbeat_s
    made.round()
    assert learnt(made) == [cell_of(5.0)]
    assert not made.cluster.unlearnt.jobs


def test_an_older_agent_reports_nothing_more() -> None:
    made = ran("a", "b")
    made.heartbeat("a", jobs=[use(3.0, last=False)])
    made.serve(e.Received("a", api.JobEnded(job="j")))
    assert learnt(made) == [cell_of(3.0)]


def test_a_job_that_comes_to_a_node_again_is_counted_from_0_there() -> None:
    made = ran("a", "b")
    made.heartbeat("b", jobs=[use(2.0)])
    made.ready("a", command("again", nodes=("b",)))
    made.round()
    made.heartbeat("b", jobs=[use(2.0)])  # sent before the command came there, which is on its way
    made.serve(e.Received("b", api.CommandEnded(job="j", task="again", origin="a", ended=EXIT)))
    made.serve(e.Received("a", api.JobEnded(job="j", use=use(0.0))))
    assert learnt(made) == []
    made.heartbeat("b", jobs=[use(8.0)])
    assert learnt(made) == [cell_of(12.0)]


def test_what_a_job_receives_after_a_restart_of_its_agent_is_added_while_this_master_is_away_too() -> None:
    """The next agent counts from 0. What it registers with has come since the restart."""
    made = ran("a")
    made.heartbeat("a", jobs=[use(10.0, last=False)])
    made.serve(e.NodeAway("a"))
    made.node("a", jobs=[job_state("j", admitted=True)], load=load(jobs=[use(4.0, last=False)]))
    made.heartbeat("a", decided=0, jobs=[use(4.5, last=False)])
    made.serve(e.Received("a", api.JobEnded(job="j", use=use(5.0))))
    assert listed_s(made) == 15.0


def test_an_end_that_the_registration_reports_waits_for_the_last_too() -> None:
    made = ran("a")
    made.serve(e.NodeAway("a"))
    made.node("a")  # the job is no longer there
    assert learnt(made) == []
    at_end = JobAtEnd(name="j", user="u", submitted_at=0.0)
    made.serve(e.Received("a", api.JobEnded(job="j", done=True, use=use(4.0), at_end=at_end)))
    assert learnt(made) == [cell_of(4.0)]
    assert listed_s(made) == 4.0


def test_a_job_that_is_stopped_teaches_nothing_but_is_listed_with_all_that_it_received() -> None:
    made = bed("a")
    made.job("a")
    made.ready("a", command("t"), task("own"))
    made.round()
    made.serve(e.Received("a", api.JobEnded(job="j", why="its client disconnected", use=use(1.0, last=False))))
    assert [decision.task for _, decision in made.decisions_of(api.Withdraw)] == ["t"], (
        "of its framework's own a knows itself"
    )
    made.heartbeat("a", jobs=[use(6.0)])
    assert len(made.cluster.sizes) == 0
    made.serve(e.Received("a", api.CommandEnded(job="j", task="t", origin="a", ended=EXIT)))
    assert listed_s(made) == 6.0


def test_a_command_of_no_job_teaches_with_the_heartbeat_that_reports_it() -> None:
    made = bed("a", ordering="gittins")
    beat = api.Heartbeat(load(), commands=[CommandUse(user="u", name="j", cpu_s=3.0)])
    made.serve(e.Received("a", beat))
    assert learnt(made) == [cell_of(3.0)]
    made.job("a")
    made.round()
    assert "(known: 1 job of j by u)" in made.listed().reason


def test_reports_of_commands_of_no_job_make_no_order_due() -> None:
    made = bed("a", ordering="gittins")
    made.job("a")
    made.round()
    due = made.cluster.dues.order_due
    made.serve(e.Received("a", api.Heartbeat(load(), commands=[CommandUse(user="u", name="j", cpu_s=3.0)])))
    assert learnt(made) == [cell_of(3.0)]
    assert not made.cluster.wants_round
    assert made.cluster.dues.order_due == due
