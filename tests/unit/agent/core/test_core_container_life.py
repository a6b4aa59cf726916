"""The life of a container follows its table; a step without a row is an error that changes nothing."""

from __future__ import annotations

import pytest

from agent.core.containers import LIFE
from agent.core.records import ContainerState
from penstock.model.life_cycle import TransitionError
from tests.fakes.node_bed import NodeBed


def test_every_state_is_reached_and_only_the_last_one_is_never_left() -> None:
    assert {ContainerState.STARTING, *LIFE.values()} == set(ContainerState)
    assert {state for state, _ in LIFE} == set(ContainerState) - {ContainerState.ENDED}


def test_a_step_without_a_row_is_named_with_the_state() -> None:
    bed = NodeBed()
    bed.open(1, "eve")
    container = bed.launch()
    bed.begin(container)
    bed.node.containers.warn(container, 15)
    with pytest.raises(TransitionError, match="'warned' cannot follow the state 'warned'"):
        bed.node.containers.warn(container, 15)
    assert bed.node.containers.live[container].state is ContainerState.WARNED
