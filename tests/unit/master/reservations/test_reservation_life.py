"""The life of a reservation follows its table; an event without a row is an error that changes nothing."""

from __future__ import annotations

from typing import get_args

import pytest

from master.reservations.rdl import Calendar, parse
from master.reservations.reservation import LIFE, Reservation, ReservationState
from penstock.model.life_cycle import TransitionError


def test_every_state_is_reached() -> None:
    assert {"asked for", *LIFE.values()} == set(get_args(ReservationState)) == {state for state, _ in LIFE}


def test_what_is_over_is_not_over_again() -> None:
    one = Reservation("r", "eve", parse("window(atom(<1 GB, 1 core>,1,1,5,5),0,10)", Calendar()), 1)
    with pytest.raises(TransitionError, match="'over' cannot follow the state 'asked for'"):
        one.step("over")
    one.step("promised")
    one.step("over")
    with pytest.raises(TransitionError, match="'over' cannot follow the state 'over'"):
        one.step("over")
    assert one.state == "over"
