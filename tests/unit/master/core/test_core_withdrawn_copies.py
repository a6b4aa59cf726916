"""The end of a command that was only taken back is not the task's end, even if its node registers before that end."""

from __future__ import annotations

from master.core import events as e
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, Bed, bed, command, job_state, placed_task


def lose(made: Bed, name: str) -> None:
    """Let a node be away for longer than the master waits, while the others send heartbeats."""
    made.serve(e.NodeAway(name))
    made.now += made.cluster.settings.node_timeout_s + 1
    for other in made.cluster.nodes.values():
        if other.connected:
            made.heartbeat(other.name)
    made.serve(e.RoundDue(made.now))
    assert name not in made.cluster.nodes


def origin_registers(made: Bed) -> None:
    """Register a, whose job waits for a place of the command."""
    ready = api.ReadyTasks(job="j", stage="s", tasks=[command("t", nodes=("b", "c"))])
    made.node("a", jobs=[job_state("j", admitted=True)], ready=[ready])


def ends_on_b(made: Bed, ended: Ended) -> None:
    made.serve(e.Received("b", api.CommandEnded(job="j", task="t", origin="a", ended=ended)))


def b_registers_and_then_the_copy_ends(made: Bed) -> None:
    """Let b register while it stops the command, which then ends as the first withdrawal asked."""
    withdrawal = next(said for node, said in made.decisions_of(api.Withdraw) if node == "b")
    made.node("b", placed=[placed_task("t")])
    by = EndedBy.PREEMPTED if withdrawal.again else EndedBy.CANCELLED
    ends_on_b(made, Ended(by=by, reason=withdrawal.why))


def runs_again(made: Bed) -> bool:
    cancelled = [said for _, said in made.decisions_of(api.TellEnded) if said.ended.by is EndedBy.CANCELLED]
    return made.round() == [("t", "b")] and not cancelled


def test_a_command_withdrawn_with_its_lost_origin_runs_again_once_the_origin_is_back() -> None:
    made = bed("b")
    origin_registers(made)
    assert made.round() == [("t", "b")]
    lose(made, "a")
    origin_registers(made)
    b_registers_and_then_the_copy_ends(made)
    assert runs_again(made)


def test_a_command_withdrawn_because_it_runs_elsewhere_runs_again_once_it_is_lost_there() -> None:
    made = bed("b")
    origin_registers(made)
    assert made.round() == [("t", "b")]
    made.node("c")
    lose(made, "b")
    assert [node for node, _ in made.decisions_of(api.Assign)] == ["b", "c"]
    made.node("b", placed=[placed_task("t")])
    lose(made, "c")
    b_registers_and_then_the_copy_ends(made)
    assert runs_again(made)


def test_a_copy_withdrawn_after_the_end_of_an_earlier_one_is_not_the_end_of_the_task_either() -> None:
    made = bed("b")
    made.answering = False
    origin_registers(made)
    assert made.round() == [("t", "b")]
    ends_on_b(made, EXIT)  # it arrives before the answer to the assignment, so that is another copy
    lose(made, "a")  # before it knew of the end
    origin_registers(made)
    made.answering = True
    b_registers_and_then_the_copy_ends(made)
    assert runs_again(made)
