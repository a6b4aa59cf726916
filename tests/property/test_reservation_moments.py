"""The promises of the moment are those of the plan's pieces, whatever the earlier queries; delays stay within
bounds.
"""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from master.core.guarantees import Promised
from master.reservations.follower import Follower
from master.reservations.placement_delay import MOST_S, PlacementDelays, size_of
from master.reservations.rdl import Bundle
from master.reservations.reservation_manager import Declined, Entry, ManagerSettings, ReservationManager

_RDL = st.builds(
    lambda cores, gang, lease, start, slack: (
        f"window(atom(<1GB,{cores}core>,{gang},{gang},{lease},{gang * lease}),+{start},+{start + lease + slack})"
    ),
    st.sampled_from([1, 2, 16]), st.integers(1, 3), st.integers(1, 6), st.integers(0, 20), st.integers(0, 8),
)  # fmt: skip
_ACTS = st.one_of(
    st.tuples(st.just("create"), _RDL),
    st.tuples(st.just("update"), _RDL),
    st.tuples(st.just("delete"), st.none()),
    st.tuples(st.just("cores"), st.integers(8, 64)),
    st.tuples(st.just("advance"), st.integers(0, 6)),
    st.tuples(st.just("learn"), st.integers(1, 30)),
)


def _by_pieces(manager: ReservationManager, at: float) -> dict[str, tuple[float, int]]:
    """Cores and bundles, counted anew."""
    found = {}
    for one in manager.agenda.reservations():
        now = [p for turn in one.turns.values() for p in turn.pieces if p.start <= manager.step(at) < p.finish]
        if now:
            found[one.id] = sum(p.number * p.bundle.cpu_cores for p in now), sum(p.number for p in now)
    return found


@given(st.lists(_ACTS, max_size=20))
@settings(max_examples=60)
def test_the_promise_of_the_moment_is_the_plan_s(acts: list[tuple[str, object]]) -> None:
    manager, at = ReservationManager(ManagerSettings(step_s=1.0, horizon_s=60.0)), 1000.0
    manager.set_capacity(Bundle(cpu_cores=64, memory_bytes=64 * 10**9), at)
    follower = Follower(manager, lead_s=2.0)
    for number, (kind, what) in enumerate(acts):
        some = next(iter(manager.entries), "")
        try:
            if kind == "create":
                manager.create(Entry(f"r{number}", "", "eve", str(what), at), at)
            elif kind == "update" and some:
                manager.update(some, str(what), at)
            elif kind == "delete" and some:
                manager.delete(some, at)
            elif kind == "cores":
                manager.set_capacity(Bundle(cpu_cores=float(str(what)), memory_bytes=64 * 10**9), at)
            elif kind == "advance":
                at += float(str(what))
                manager.advance(at)
            elif kind == "learn":
                for moment, waiting in ((at - float(str(what)), ("x",)), (at, ())):
                    manager.placement_delays.saw(moment, {"x": Promised(16.0, 1e9, 1)}, waiting)
                manager.placement_delays.saw(at, {}, ())
        except Declined:
            pass
        for entry in manager.entries.values():
            known = manager.known(entry.id)
            assert (known is not None and known.state == "kept") == (not entry.dropped)
        for moment in (at, at + 3, at + 7, at):
            promised = {name: (one.amounts[0], one.bundles) for name, one in manager.promised(moment).items()}
            assert promised == _by_pieces(manager, moment)
        _follows(follower, manager, at)


def _follows(follower: Follower, manager: ReservationManager, at: float) -> None:
    """Nothing is reported before its own lead, and nothing due is left out; it changes at its announced time."""
    told = follower.promised(at)
    assert told.keys() >= manager.promised(at + follower.lead_s).keys() | manager.promised(at).keys()
    for name, promised in told.items():
        late_s = max(0.0, manager.placement_delays.delay_s(size_of(promised), at) - follower.lead_s)
        leads = (0.0, follower.lead_s, follower.lead_s + math.ceil(2 * late_s) / 2)  # in steps of half a second
        assert any(name in manager.promised(at + lead_s) for lead_s in leads)
    changes_at = follower.changes_at(at)
    assert changes_at is None or changes_at > at - 1.0
    if changes_at is not None and changes_at - at > 0.5:
        assert follower.promised(changes_at - 0.25) == told


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.integers(0, 9000)), max_size=12))
@settings(max_examples=100)
def test_a_delay_is_never_longer_than_the_longest_observed(launches: list[tuple[str, int, int]]) -> None:
    """By size: 0 to MOST_S, no longer than the longest wait, and falling while nothing is seen."""
    delays, at = PlacementDelays(), 0.0
    kinds = {"a": Promised(1.0, 1e9, 1), "b": Promised(16.0, 1e9, 1)}
    longest = {"a": 0.0, "b": 0.0}
    for kind, delay_s, pause_s in launches:
        before = {name: delays.delay_s(size_of(kinds[name]), at) for name in kinds}
        at += pause_s
        assert all(delays.delay_s(size_of(kinds[name]), at) <= before[name] for name in kinds)
        delays.saw(at, {"r": kinds[kind]}, ("r",))
        at += delay_s
        delays.saw(at, {"r": kinds[kind]}, ())
        delays.saw(at, {}, ())
        longest[kind] = max(longest[kind], delay_s)
        for name, promised in kinds.items():
            assert 0.0 <= delays.delay_s(size_of(promised), at) <= min(MOST_S, longest[name]) + 1e-9
