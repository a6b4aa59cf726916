"""The limit on one request's planning: a request that takes too long is refused, and no other is."""

from __future__ import annotations

import pytest

from master.reservations.effort import MOST_SOLUTIONS
from master.reservations.rdl import Atom, Bundle
from master.reservations.reservation_manager import PLANNERS, Declined
from tests.unit.master.reservations.test_reservation_manager import NOW, entry, manager, pieces


@pytest.mark.parametrize("planner", PLANNERS)
def test_each_planner_stops(planner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("master.reservations.effort.MOST_EFFORT", 20_000)
    one = manager(planner=planner)
    with pytest.raises(Declined, match="takes too long to plan"):
        one.create(entry("long", f"all({', '.join(['atom(b, 1, 1, 1s, 1)'] * 50)}) every 1000s"), NOW)


def test_a_request_that_takes_too_long_to_plan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("master.reservations.effort.MOST_EFFORT", 20_000)
    one = manager()
    one.create(entry("kept", "window(atom(b,2,8,10s,160),+0s,+10min)"), NOW)
    many = ", ".join(f"atom(b, 1, 2, 10s, {20 + number})" for number in range(400))
    for rdl in (f"all({many})", "atom(b,1,1,1s,1) every 100s", f"order({many}, no_gap)"):
        with pytest.raises(Declined, match="takes too long to plan: write fewer atoms, longer leases or") as refused:
            one.create(entry("long", rdl), NOW)
        assert not refused.value.malformed
        with pytest.raises(Declined, match=r"takes too long to plan.*; it keeps what it had"):
            one.update("kept", rdl, NOW)
    assert pieces(one, "kept") == [(580, 600, 8)]
    smaller = Bundle(cpu_cores=6.0, memory_bytes=100 << 30)
    assert one.set_capacity(smaller, NOW) == [], "promises are planned anew all the same"
    assert sum((finish - start) * number for start, finish, number in pieces(one, "kept")) == 160
    one.create(entry("short", "all(atom(b,1,2,10s,20), atom(b,1,2,10s,21)) every 100h"), NOW)


def test_the_solver_is_asked_few_questions_for_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def least_solved(atom: Atom, *more: object, **options: object) -> None:
        asked.append(atom.work)

    monkeypatch.setattr("master.reservations.gree.least_solved", least_solved)
    one, room, begins = manager(), [4, 3, 4, 4, 4, 4, 1, 3, 1, 4, 3, 1, 1], range(0, 800, 100)
    taken = [
        f"window(atom(b,{10 - h},{10 - h},1,{10 - h}),+{at + i}s,+{at + i + 1}s)"
        for at in begins
        for i, h in enumerate(room)
    ]
    one.create(entry("taken", f"all({', '.join(taken)})"), NOW)
    same = [f"window(atom(b,1,4,6,26),+{at}s,+{at + len(room)}s)" for at in begins]
    one.create(entry("same", f"all({', '.join(same)})"), NOW)
    assert asked == [26], "a question is asked once"
    one.delete("same", NOW)
    others = [f"window(atom(b,1,4,6,{20 + n}),+{at}s,+{at + len(room)}s)" for n, at in enumerate(begins)]
    one.create(entry("others", f"all({', '.join(others)})"), NOW)
    assert len(asked) == 1 + MOST_SOLUTIONS


def test_work_beyond_all_steps_that_are_tried_one_by_one_is_planned_at_once() -> None:
    one, work = manager(), 10**15 + 1
    one.create(entry("r", f"window(atom(b,2,2,2,{work}),+0s,+{work}s)"), NOW)
    assert sum((finish - start) * number for start, finish, number in pieces(one, "r")) == work + 1
