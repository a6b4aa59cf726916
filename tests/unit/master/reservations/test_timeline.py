"""The plan over time: the shown parts add up to the promises, and the free part is the rest."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from master.reservations.rdl import Bundle
from master.reservations.reservation_manager import Declined, Entry, ManagerSettings, ReservationManager
from master.reservations.timeline import MOST_RUNS, free_runs, stacked
from penstock.model.resource_vector import RESOURCES


def manager(*asked: tuple[str, str, str], step_s: float = 1.0) -> ReservationManager:
    """Return a manager with these (id, user, rdl) each; declined ones are left out."""
    one = ReservationManager(ManagerSettings(step_s=step_s, horizon_s=100_000.0))
    one.set_capacity(Bundle(cpu_cores=10.0, memory_bytes=100), 0.0)
    for id, user, rdl in asked:  # noqa: A001 - the field's name
        try:
            one.create(Entry(id, "", user, rdl, 0.0), 0.0)
        except Declined:
            continue
    return one


def test_users_are_stacked_over_time() -> None:
    one = manager(
        ("a", "eve", "window(atom(<10B,2core>,2,2,4,8),0,20)"),
        ("b", "eve", "window(atom(<1core>,1,1,4,4),0,18)"),
        ("c", "bob", "window(atom(<1core>,3,3,2,6),0,40)"),
    )
    said = stacked(one, 10.0, 30.0)
    assert said.times == [10.0, 14.0, 16.0, 18.0, 20.0]
    assert said.until == 30.0
    assert said.promised["eve"]["cpu_cores"] == [0.0, 1.0, 5.0, 4.0, 0.0]
    assert said.promised["eve"]["memory_bytes"] == [0.0, 0.0, 20.0, 20.0, 0.0]
    assert said.capacity["cpu_cores"] == [10.0] * 5
    assert set(said.promised) == {"eve"}, "bob's is later"
    assert set(stacked(one, 10.0, 40.0, by="reservation").promised) == {"a", "b", "c"}


def test_steps_may_be_long() -> None:
    said = stacked(manager(("a", "eve", "window(atom(<2core>,2,2,4,8),0,20)"), step_s=60.0), 961.0, 1100.0)
    assert (said.times, said.until, said.step_s) == ([960.0], 1080.0, 60.0)
    assert said.promised == {"eve": {name: [4.0 if name == "cpu_cores" else 0.0] for name in RESOURCES}}


def test_no_more_is_shown_than_can_be_looked_at() -> None:
    one = manager(("a", "eve", "window(atom(<1core>,1,1,1,1),3,4) every 8 until 8200"))
    said = stacked(one, 0.0, 9000.0)
    assert len(said.times) == MOST_RUNS
    assert said.times[-1] < said.until < 8200.0
    assert len(free_runs(one, 0.0)) == MOST_RUNS
    assert free_runs(one, 8190.0)[-1].finish is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["eve", "bob"]), st.integers(1, 4), st.integers(1, 5), st.integers(0, 30)), max_size=8
    ),
    st.integers(0, 30), st.integers(1, 30),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_promises_and_free_parts_are_the_whole(asked: list[tuple[str, int, int, int]], since: int, length: int) -> None:
    one = manager(
        *(
            (
                f"r{n}",
                user,
                f"window(atom(<3B,1core>,{high},{high},{lease},{high * lease}),{start},{start + lease + 9})",
            )
            for n, (user, high, lease, start) in enumerate(asked)
        )
    )
    for by in ("user", "reservation"):
        said = stacked(one, float(since), float(since + length), by=by)
        assert said.times[0] == since and said.until == since + length
        for place, moment in enumerate(said.times):
            total = {name: sum(each[name][place] for each in said.promised.values()) for name in RESOURCES}
            free = free_runs(one, moment)[0]
            assert free.start == moment
            for name in RESOURCES:
                assert total[name] + getattr(free, name) == said.capacity[name][place]
