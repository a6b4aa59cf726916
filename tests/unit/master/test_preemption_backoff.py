"""After a preemption a task keeps away from that node's slack for a time, and the node takes less on its slack."""

from __future__ import annotations

import pytest

from master.core import events as e
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, MB, Bed, command, load

KILLED = Ended(by=EndedBy.PREEMPTED, exit_status=137, reason="memory was wanted")
HANDED_BACK = Ended(by=EndedBy.PREEMPTED, reason="it has waited 10 s for slack")


def bed(*nodes: str, tasks: int = 1, **settings: float) -> Bed:
    """Nodes with 800 MB of slack, and tasks of 100 MB that take nothing but slack."""
    made = Bed(**{"promotion": False, "preemption_backoff_s": 10.0, "preemption_backoff_max_s": 30.0, **settings})
    for name in nodes:
        made.node(name, t_alloc=0.8, load=load())
    made.job(nodes[0])
    made.ready(nodes[0], *[command(f"t{number}", 100) for number in range(tasks)], opportunistic="only")
    return made


def end(b: Bed, task: str, node: str = "a", ended: Ended = KILLED) -> None:
    b.serve(e.Received(node, api.CommandEnded(job="j", task=task, origin="a", ended=ended)))
    b.heartbeat(node)


def placed(b: Bed) -> list[str]:
    """Return the placements of a round by its tasks; the nodes have reported since."""
    for name in b.cluster.nodes:
        b.heartbeat(name)
    return [task for task, _ in b.round(0.0)]


def test_a_preempted_task_keeps_away_twice_as_long_each_time_up_to_the_longest_pause() -> None:
    b = bed("a")
    assert b.round() == [("t0", "a")]
    for pause_s in (10.0, 20.0, 30.0, 30.0):
        end(b, "t0")
        b.now += pause_s - 1.0
        assert placed(b) == []
        b.now += 1.5
        assert placed(b) == ["t0"]


def test_it_is_placed_on_another_node_meanwhile_and_its_pauses_count_for_each_node() -> None:
    b = bed("a", "b")
    ((_, first),) = b.round()
    end(b, "t0", first)
    ((_, second),) = b.round()
    assert second != first
    end(b, "t0", second)
    b.now += 9.9
    assert placed(b) == ["t0"], "the pause at the first node is over, and was the first there"


def test_regular_room_is_not_kept_from_it() -> None:
    b = bed("a")
    b.heartbeat("a", promised_memory_bytes=1000 * MB)
    b.ready("a", command("either", 100), opportunistic=True)
    assert sorted(task for task, _ in b.round()) == ["either", "t0"]
    end(b, "either")
    b.heartbeat("a", promised_memory_bytes=1000 * MB)
    assert b.round() == []
    b.heartbeat("a", promised_memory_bytes=0)
    assert b.round() == [("either", "a")]
    assert not b.decisions_of(api.Assign)[-1][1].opportunistic


def test_a_node_takes_no_more_at_once_than_was_left_there_and_one_more_for_each_that_ends() -> None:
    b = bed("a", tasks=4)
    b.heartbeat("a")
    assert len(b.round()) == 4
    end(b, "t0")
    end(b, "t1")
    b.ready("a", *[command(f"u{number}", 10) for number in range(9)], opportunistic="only")
    assert placed(b) == [], "two are left, and two is the limit"
    end(b, "t2", ended=EXIT)
    assert placed(b) == ["u0", "u1"], "one has ended, so the limit is three"
    b.now += 30.0
    assert len(placed(b)) > 3, "without another preemption the limit is lifted"


def test_at_least_one_is_tried_again() -> None:
    b = bed("a", tasks=3)
    b.round()
    for task in ("t0", "t1", "t2"):
        end(b, task)
    b.now += 10.0
    assert len(placed(b)) == 1
    b.ready("a", command("u", 10), opportunistic="only")
    assert placed(b) == []
    waits = b.cluster.jobs["j"].waits
    assert "of 1 node 1 lacks room for more on slack since a preemption there" in waits


@pytest.mark.parametrize(("ended", "first_s"), [(HANDED_BACK, 10.0), (KILLED, 0.0)])
def test_a_task_that_never_ran_has_no_back_off_and_zero_turns_it_off(ended: Ended, first_s: float) -> None:
    b = bed("a", tasks=3, preemption_backoff_s=first_s)
    b.round()
    end(b, "t0", ended=ended)
    assert placed(b) == ["t0"]


def test_a_drained_node_is_not_held_against_the_task() -> None:
    b = bed("a")
    b.round()
    b.serve(e.DrainRequested(("a",), by="root", at=0.0, stop=True))
    end(b, "t0")
    b.serve(e.UndrainRequested(("a",), by="root"))
    assert placed(b) == ["t0"]
