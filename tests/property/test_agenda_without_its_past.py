"""The agenda drops its past: nothing that can be asked of it differs from one that keeps everything."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from master.reservations.agenda import Agenda
from master.reservations.gree import Gree
from master.reservations.plan import Steps
from master.reservations.rdl import Bundle, parse
from master.reservations.sharing import Instantaneous, Integral

WINDOW = 30
POLICIES = [[], [Instantaneous(0.5)], [Integral(0.4, WINDOW)], [Instantaneous(0.6), Integral(0.4, WINDOW)]]
ACTS = st.one_of(
    st.tuples(st.just("create"), st.integers(1, 4), st.integers(1, 8), st.sampled_from(["", "every 9", "every 25"])),
    st.tuples(st.just("delete"), st.integers(0, 9), st.just(0), st.just("")),
    st.tuples(st.just("advance"), st.integers(1, 40), st.just(0), st.just("")),
    st.tuples(st.just("capacity"), st.integers(1, 9), st.integers(0, 20), st.just("")),
)


class Keeps(Agenda):
    """An agenda that keeps its past."""

    def __init__(self, policies: list[Instantaneous | Integral]) -> None:
        super().__init__(Bundle(cpu_cores=8.0), Gree, horizon=40, policies=policies)
        self.plan.drop_past = lambda before: None  # type: ignore[method-assign]


def from_now(steps: Steps, now: int) -> list[tuple[int, list[float]]]:
    """The amounts at each step from now on, until the last change of all."""
    return [(step, steps.at(step)) for step in range(now, max(now, steps.starts[-1]) + 2)]


@given(st.lists(ACTS, max_size=25), st.sampled_from(POLICIES))
@settings(max_examples=100)
@example([("capacity", 1, 1, ""), ("advance", 1, 0, ""), ("create", 3, 7, "")], [])
def test_nothing_that_can_be_asked_for_needs_the_past(
    acts: list[tuple[str, int, int, str]], policies: list[Instantaneous | Integral]
) -> None:
    one, keeps, now = Agenda(Bundle(cpu_cores=8.0), Gree, horizon=40, policies=policies), Keeps(policies), 0
    for number, (kind, a, b, every) in enumerate(acts):
        said, then = list[object](), now + (a if kind == "advance" else 0)
        for each in (one, keeps):
            known = [found.id for found in each.reservations()]
            if kind == "create":
                rdl = f"window(atom(<1core>,1,{a},1,{a * b}),{now},{now + 20}) {every}"
                said.append(each.create(f"r{number}", "eve", parse(rdl), now))
            elif kind == "delete" and known:
                each.delete(known[a % len(known)], now)
            elif kind == "advance":
                said.append(each.advance(then))
            elif kind == "capacity":
                each.plan.set_capacity(now + b, Bundle(cpu_cores=float(a)))
                said.append((each.repair(now), each.give_back(now)))
            turns = {key: turn.placed for found in each.reservations() for key, turn in found.turns.items()}
            said.append((known, turns))
            said.append((from_now(each.plan.free, then), from_now(each.plan.capacity, then)))
        assert said[: len(said) // 2] == said[len(said) // 2 :]
        now = then
        counted = now - (WINDOW if any(isinstance(policy, Integral) for policy in policies) else 0)
        if kind == "advance":
            for steps in (one.plan.capacity, one.plan.free):
                assert all(start > counted for start in steps.starts[1:])


def test_a_plan_does_not_grow_with_the_time_that_a_master_runs() -> None:
    one = Agenda(Bundle(cpu_cores=8.0), Gree, horizon=40, policies=[Instantaneous(0.5)])
    runs = []
    for now in range(0, 4000, 10):
        one.create(f"r{now}", "eve", parse(f"window(atom(<0.1core>,1,3,2,6),{now},{now + 9})"), now)
        one.plan.set_capacity(now, Bundle(cpu_cores=8.0 + now % 3))
        one.advance(now)
        runs.append(len(one.plan.capacity.starts) + len(one.plan.free.starts))
    assert max(runs[200:]) <= max(runs[:200])
