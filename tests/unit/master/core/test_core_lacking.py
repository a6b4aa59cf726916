"""What nodes lack for executors that wait: it is searched when it is asked, as the nodes are then."""

from __future__ import annotations

import gc

from master.core import events as e
from master.core.free_capacity import FreeCapacity
from master.core.lacking import Lacking
from penstock.wire import master_api as api
from tests.unit.master.core.executor_bed import ExecutorBed, executor, profile

APP = "u/app"


def full(*names: str) -> ExecutorBed:
    """Return nodes with too few cores for an executor of job ``j``, after a round."""
    b = ExecutorBed(*names, forecasts={APP: profile((3, 100), (3, 100))})
    for name in names:
        b.beats(name, [(1, 900), (1, 900)])
    b.executors(executor("e0"))
    assert b.round() == []
    return b


def alive(*kinds: type) -> int:
    """Return the number of objects of these classes in memory."""
    gc.collect()
    return sum(isinstance(one, kinds) for one in gc.get_objects())


def test_nodes_that_have_room_since_the_round_are_told_from_those_that_lack_some() -> None:
    b = full("a", "b")
    b.beats("a", [(4, 900), (4, 900)])
    assert b.waits() == (
        "1 executor waits: of 2 nodes 1 lacks cpu within the 2 s of its profile; "
        "1 has room for it now and is tried in the next round"
    )
    assert b.round() == [("e0", "a")]


def test_where_no_node_lacks_anything_since_the_round_none_is_said_to() -> None:
    b = full("a", "b")
    for name in ("a", "b"):
        b.beats(name, [(4, 900), (4, 900)])
    assert b.waits() == "1 executor waits: of 2 nodes 2 have room for it now and are tried in the next round"


def test_nodes_that_are_away_since_the_round_do_not_count() -> None:
    b = full("a", "b")
    b.serve(e.NodeAway("b"))
    assert b.waits() == "1 executor waits: of 1 node 1 lacks cpu within the 2 s of its profile"
    b = full("a")
    b.serve(e.NodeAway("a"))
    assert b.waits() == "1 executor waits: no node is connected"


def test_the_answer_keeps_no_room_in_memory() -> None:
    before = alive(FreeCapacity)
    b = full("a")
    assert "1 lacks cpu" in b.waits()
    assert alive(FreeCapacity) == before


def test_nothing_is_kept_of_executors_when_none_waits() -> None:
    before = alive(Lacking)
    b = full("a")
    assert alive(Lacking) > before
    b.serve(e.Received("a", api.JobEnded(job="j", done=False)))
    assert alive(Lacking) == before
