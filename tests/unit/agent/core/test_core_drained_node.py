"""A node that is drained: the work that it gives back, keeps and remembers, and its report of work that still runs."""

from __future__ import annotations

import pytest

from agent.core import draining
from agent.core import instructions as i
from penstock.model import EndedBy, KindAmounts, TaskRequest
from penstock.wire.cluster_api import Draining, Remaining
from penstock.wire.master_api import CommandEnded, Drain
from tests.unit.agent.core.test_core_slack import JOB, Bed

ROOT = Draining("root", 1000.0)


def back(bed: Bed) -> list[tuple[str, EndedBy]]:
    """Return the tasks that went back to the master."""
    return [(one.task, one.ended.by) for one in bed.to_master(CommandEnded)]


def test_work_for_other_nodes_goes_back_at_once_and_the_rest_ends_by_itself() -> None:
    bed = Bed(opportunistic_queue=1)
    bed.assign("slack")
    for name in ("runs", "runs, too", "waits for a core"):
        bed.assign(name, opportunistic=False)
    bed.assign("waits for slack", memory=900)
    assert bed.started() == ["slack", "runs", "runs, too"]
    for task in ("slack", "runs", "runs, too"):
        bed.begin(bed.container(task))
    killed, runs = bed.container("slack"), [bed.container("runs"), bed.container("runs, too")]
    assert bed.decide(Drain(draining=ROOT)) == []
    assert back(bed) == [("waits for a core", EndedBy.PREEMPTED), ("waits for slack", EndedBy.PREEMPTED)]
    assert bed.given(i.KillContainer) == [i.KillContainer(killed, "n is drained by root")]
    bed.exit(killed, 137)
    assert back(bed)[2:] == [("slack", EndedBy.PREEMPTED)]
    status = bed.node.drain.status()
    assert status is not None
    assert (status.state, status.count) == ("draining", 2)
    assert status.remaining[0] == Remaining("command", f"{JOB}/runs", JOB, "eve")
    for container in runs:
        bed.exit(container)
    assert back(bed)[3:] == [("runs", EndedBy.EXIT), ("runs, too", EndedBy.EXIT)]
    assert not bed.node.held.by_key and not bed.node.jobs
    status = bed.node.drain.status()
    assert status is not None and status.state == "drained"


@pytest.mark.parametrize("opportunistic", [False, True])
def test_it_refuses_work_until_it_is_undrained(opportunistic: bool) -> None:
    bed = Bed()
    bed.decide(Drain(draining=ROOT))
    assert bed.assign("t", opportunistic=opportunistic) == [draining.REFUSAL]
    request = TaskRequest(task="f", usage=KindAmounts(cpu=1.0))
    assert bed.assign_request(request) == [draining.REFUSAL]
    bed.decide(Drain(draining=None))
    assert bed.assign("t", opportunistic=opportunistic) == []
    assert bed.node.drain.status() is None


def test_work_of_its_own_users_goes_on_and_is_named() -> None:
    bed = Bed()
    bed.launch(argv=("sleep", "9"))
    job = bed.register()
    bed.submit(1, job, *range(5))
    bed.assign("regular", opportunistic=False)
    assert bed.node.heartbeat(0.0).own == [], "the list is made only once it is drained"
    bed.decide(Drain(draining=ROOT))
    (container,) = bed.node.containers.live
    assert bed.node.heartbeat(0.0).own == [
        Remaining("container", container, "sleep", "eve"),
        Remaining("slots", job, "j (2)", "eve"),
    ]
    later = bed.launch()
    assert {each.id for each in bed.node.heartbeat(0.0).own} >= {container, later}


def test_the_name_of_a_program_is_cut_as_other_names_are() -> None:
    bed = Bed()
    bed.launch(argv=("x" * 100_000,))
    bed.decide(Drain(draining=ROOT))
    assert [len(each.name) for each in bed.node.heartbeat(0.0).own] == [128]


def test_it_remembers_over_a_restart_and_goes_on_giving_back() -> None:
    bed = Bed()
    bed.assign("slack")
    container = bed.container("slack")
    bed.begin(container)
    bed.decide(Drain(draining=ROOT))
    assert bed.of(draining.ROOM) == [ROOT]
    bed.restart(container)
    assert [one.container for one in bed.given(i.KillContainer)] == [container], "once"
    assert bed.assign("t") == [draining.REFUSAL]
    bed.decide(Drain(draining=None))
    assert bed.of(draining.ROOM) == []
