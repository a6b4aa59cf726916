"""The machines that could take a peak, kept up to date, are those that a comparison of all would give."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from master.placement.executors import Demands
from master.placement.peak import Choices, fit, roomy
from simulator.executors.machines import PlannedMachines

_MACHINES = 4
_AMOUNT = st.integers(0, 8).map(float)
_PEAK = st.tuples(_AMOUNT, _AMOUNT, _AMOUNT, _AMOUNT)
#: Add a demand; or launch one (by number) on a machine; or end the first executor of a machine; or look.
_EVENTS = st.one_of(
    st.tuples(st.just("add"), _PEAK, st.just(0)),
    st.tuples(st.just("launch"), st.integers(0, 20), st.integers(0, _MACHINES - 1)),
    st.tuples(st.just("end"), st.just(0), st.integers(0, _MACHINES - 1)),
    st.tuples(st.just("look"), st.just(0), st.just(0)),
)


@given(st.lists(_EVENTS, max_size=40))
def test_the_index_equals_a_comparison_of_all(events: list[tuple[str, object, int]]) -> None:
    capacity = np.tile([8.0, 6.0, 4.0, 8.0], (_MACHINES, 1))
    machines, demands = PlannedMachines([f"m{index}" for index in range(_MACHINES)], capacity, 1), Demands(1)
    choices = Choices(machines, demands)
    launched = 0
    for what, value, machine in events:
        if what == "add":
            demands.add(np.array(value)[:, None])
        elif what == "launch" and len(demands):
            wanted = demands.of(int(value) % len(demands))
            if fit(wanted[:, 0], machines.available(machine)[:, 0], capacity[machine]).all():
                launched += 1
                machines.launch(machine, launched, wanted)
        elif what == "end" and machines.executors(machine):
            machines.end(machine, machines.executors(machine)[0])
        elif what == "look":
            _check(choices, machines, demands)
    _check(choices, machines, demands)


def _check(choices: Choices, machines: PlannedMachines, demands: Demands) -> None:
    choices.look()
    free = machines.free()
    assert Choices.now(choices, machines, demands) is choices
    assert len(choices.fits) == len(choices.counts) == len(demands)
    for number in range(len(demands)):
        peak = demands.peaks[number]
        expected = fit(peak, free, machines.capacity)
        assert (choices.fits[number] == expected).all()
        assert choices.counts[number] == expected.sum()
        for machine in range(len(machines)):
            room = roomy(free[machine], machines.capacity[machine])
            assert all(wanted <= there for wanted, there in zip(peak, room, strict=True)) == expected[machine]
    assert (choices.shares == (free / machines.capacity).sum(axis=1)).all()
