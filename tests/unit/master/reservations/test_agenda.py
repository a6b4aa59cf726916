"""The agenda: an accepted reservation stays accepted, and as requested, after any events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.reservations.agenda import Agenda, Dropped
from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.rdl import Bundle, Request, parse
from master.reservations.sharing import Instantaneous
from tests.unit.master.reservations.plan_bed import CORE, wrong
from tests.unit.master.reservations.test_gree import _ASKED, _CAPACITY


def agenda(cores: float = 10.0, horizon: int = 100, policies: tuple[Instantaneous, ...] = ()) -> Agenda:
    return Agenda(Bundle(cpu_cores=cores), Gree, horizon=horizon, policies=policies)


def with_capacity(one: Agenda, since: int, capacity: Bundle, now: int, until: int | None = None) -> list[Dropped]:
    one.plan.set_capacity(since, capacity, until)
    return one.repair(now)


def asked(text: str) -> Request:
    return parse(text, bundles={"b": CORE})


def promised(one: Agenda) -> dict[str, list[tuple[int, int, int]]]:
    return {
        key: sorted((piece.start, piece.finish, piece.number) for piece in each.pieces)
        for reservation in one.reservations()
        for key, each in reservation.turns.items()
    }


def test_a_yes_or_a_no_at_once() -> None:
    one = agenda()
    assert one.create("a", "eve", asked("window(atom(b,8,8,5,40),0,10)"), 0) == ""
    assert one.create("b", "bob", asked("window(atom(b,8,8,6,48),0,10)"), 0) == "no room next to the existing promises"
    assert "takes 6 steps" in one.create("c", "bob", asked("window(atom(b,8,8,6,48),5,10)"), 0)
    assert "the cluster has 10" in one.create("d", "bob", asked("atom(b,11,11,1,11)"), 0)
    assert promised(one) == {"a": [(5, 10, 8)]}
    assert [each.id for each in one.reservations("bob")] == []
    with pytest.raises(KeyError):
        one.create("a", "eve", asked("atom(b,1,1,1,1)"), 0)
    one.delete("a")
    assert promised(one) == {}
    assert one.plan.free.rows == [[10.0, 0, 0, 0]]


def test_the_turns_of_all_reservations_of_a_user_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at in each step of the plan."""
    monkeypatch.setattr("master.reservations.agenda.MOST_TURNS", 12)
    one = agenda(horizon=100)
    assert one.create("a", "eve", asked("atom(b,1,1,1,1) every 10"), 0) == ""
    assert one.create("b", "eve", asked("atom(b,1,1,1,1) every 20"), 0) == (
        "5 turns of it, and 10 of other reservations, lie within the plan's horizon; at most 12 of a user: "
        "write a longer period"
    )
    assert one.create("c", "eve", asked("atom(b,1,1,1,1)"), 0) == "", "one that does not recur is one turn"
    assert one.create("d", "max", asked("atom(b,1,1,1,1) every 10"), 0) == ""
    assert one.update("a", asked("atom(b,1,1,1,1) every 10"), 1) == "", "its own former turns do not count"


def test_an_update_that_does_not_fit_leaves_the_former_state() -> None:
    one = agenda()
    one.create("a", "eve", asked("window(atom(b,4,4,5,20),0,10)"), 0)
    one.create("b", "eve", asked("window(atom(b,4,4,5,20),0,10)"), 0)
    before = promised(one)
    assert one.update("a", asked("window(atom(b,8,8,8,64),0,10)"), 0) == "no room next to the existing promises"
    assert promised(one) == before
    assert one.update("a", asked("window(atom(b,6,6,5,30),0,10)"), 0) == ""
    assert promised(one)["a"] == [(5, 10, 6)]
    assert [each.id for each in one.reservations()] == ["a", "b"]  # it keeps its place


def test_a_policy_has_the_last_word() -> None:
    one = agenda(policies=(Instantaneous(0.5),))
    assert one.create("a", "eve", asked("window(atom(b,3,3,5,15),0,5)"), 0) == ""
    assert "eve would have 60.0% of the cpu" in one.create("b", "eve", asked("window(atom(b,3,3,5,15),0,5)"), 0)
    assert one.create("b", "bob", asked("window(atom(b,3,3,5,15),0,5)"), 0) == ""
    assert set(promised(one)) == {"a", "b"}


def test_a_recurring_reservation_is_planned_as_it_comes_into_sight() -> None:
    one = agenda(horizon=20)
    assert one.create("daily", "eve", asked("window(atom(b,5,5,2,10),0,4) every 10 until 45"), 3) == ""
    assert promised(one) == {"daily+1": [(12, 14, 5)], "daily+2": [(22, 24, 5)]}  # too late for the first
    assert one.advance(14) == []
    assert set(promised(one)) == {"daily+2", "daily+3"}
    assert one.advance(30) == []
    assert set(promised(one)) == {"daily+3", "daily+4"}
    assert one.advance(44) == []
    assert promised(one) == {}
    assert one.reservations() != []
    assert one.advance(45) == []
    assert one.reservations() == []


def test_a_turn_that_finds_no_room_is_reported_and_the_others_stay() -> None:
    one = agenda(horizon=20)
    one.create("daily", "eve", asked("window(atom(b,5,5,2,10),0,4) every 10"), 0)
    one.create("all", "bob", asked("window(atom(b,10,10,10,100),20,30)"), 0)
    assert one.advance(5) == [Dropped("daily", "eve", "daily+2", "no room next to the existing promises")]
    assert one.advance(15) == []
    assert set(promised(one)) == {"all", "daily+3"}


def test_lost_capacity_drops_the_newest_and_moves_all_that_can_be_moved() -> None:
    one = agenda()
    one.create("old", "eve", asked("window(atom(b,5,5,5,25),0,10)"), 0)
    one.create("movable", "eve", asked("window(atom(b,5,5,5,25),0,20)"), 0)
    one.create("new", "bob", asked("window(atom(b,5,5,5,25),5,10)"), 0)
    assert promised(one) == {"old": [(5, 10, 5)], "movable": [(15, 20, 5)], "new": [(5, 10, 5)]}
    said = with_capacity(one, 5, Bundle(cpu_cores=5.0), 0)
    assert [each.id for each in said] == ["new"]
    assert "less than was promised" in said[0].why
    assert with_capacity(one, 15, Bundle(cpu_cores=4.0), 0) == []
    assert promised(one) == {"old": [(5, 10, 5)], "movable": [(10, 15, 5)]}


def test_several_turns_of_one_reservation_are_lost_together() -> None:
    """Its windows overlap, so two of its turns lie ahead when its recurrence is over."""
    one = agenda(cores=5.0)
    assert one.create("r", "eve", asked("window(atom(b,5,5,5,25),0,40) every 10 until 20"), 0) == ""
    assert promised(one) == {"r+0": [(35, 40, 5)], "r+1": [(45, 50, 5)]}
    dropped = with_capacity(one, 25, Bundle(cpu_cores=1.0), 25)
    assert [each.turn for each in dropped] == ["r+0", "r+1"]
    assert one.reservations() == [] and one.known("r") is not None


def test_a_reservation_that_has_begun_is_planned_anew_for_the_rest() -> None:
    one = agenda()
    one.create("a", "eve", asked("window(order(atom(b,5,5,2,50),atom(b,2,2,2,10)),0,30)"), 0)
    assert promised(one) == {"a": [(15, 25, 5), (25, 30, 2)]}
    assert with_capacity(one, 18, Bundle(cpu_cores=4.0), 18, until=20) == [
        Dropped("a", "eve", "a", "the cluster has less than was promised, and no room for it in its time")
    ]
    one.create("b", "eve", asked("window(order(atom(b,5,5,2,25),atom(b,2,2,2,10)),18,35)"), 18)
    assert promised(one) == {"b": [(25, 30, 5), (30, 35, 2)]}
    one.advance(27)
    assert with_capacity(one, 27, Bundle(cpu_cores=4.0), 27, until=28) != []


@given(
    _CAPACITY,
    st.lists(
        st.one_of(
            st.tuples(st.just("create"), _ASKED, st.sampled_from([None, None, 7, 30])),
            st.tuples(st.just("update"), _ASKED, st.integers(0, 9)),
            st.tuples(st.just("delete"), st.none(), st.integers(0, 9)),
            st.tuples(st.just("advance"), st.none(), st.integers(0, 25)),
            st.tuples(st.just("capacity"), _CAPACITY, st.integers(0, 40)),
        ),
        max_size=14,
    ),
    st.sampled_from([Gree, GreeL]),
)
@settings(max_examples=100)
def test_every_promise_equals_its_request_and_the_plan_never_exceeds_the_capacity(
    capacity: Bundle, acts: list[tuple[str, object, int | None]], planner: type[Gree]
) -> None:
    one, now = Agenda(capacity, planner, horizon=50), 0
    for number, (kind, what, more) in enumerate(acts):
        known = [each.id for each in one.reservations()]
        some = known[(more or 0) % len(known)] if known else ""
        before = promised(one)
        if kind == "create":
            request = Request(expression=what, every=more)  # type: ignore[arg-type]
            why = one.create(f"r{number}", "eve", request, now)
            assert bool(why) == (f"r{number}" not in {each.id for each in one.reservations()})
            assert {key: promised(one)[key] for key in before} == before
        elif kind == "update" and some:
            request = Request(expression=what)  # type: ignore[arg-type]
            assert not one.update(some, request, now) or promised(one) == before
        elif kind == "delete" and some:
            one.delete(some)
        elif kind == "advance":
            now += more or 0
            one.advance(now)
        elif kind == "capacity":
            assert isinstance(what, Bundle)
            dropped = with_capacity(one, now + (more or 0), what, now)
            assert {each.turn for each in dropped} == before.keys() - promised(one).keys()
        assert one.plan.overcommitted(now) is None
        assert sorted(one.plan.reservations()) == sorted(promised(one))
        for each in one.reservations():
            for made in each.turns.values():
                assert wrong(made.expression, made.placed) == ""
                assert one.plan.reservations()[made.key] == tuple(
                    sorted(made.pieces, key=lambda p: (p.start, p.finish))
                )
