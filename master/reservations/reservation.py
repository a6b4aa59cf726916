"""PURE. A reservation in the agenda, and its life cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from master.reservations.plan import Piece
from master.reservations.rdl import Recurrence, Request
from master.reservations.turns import Cut, Turn
from penstock.model.life_cycle import next_state

ReservationState = Literal["asked for", "kept", "cut off", "over"]
ReservationEvent = Literal["promised", "cut off", "over"]
#: The life of a reservation: its state and an event → its next state. An event without a row is an error of the
#: program. It is cut off when a loss of capacity has removed all its turns; they may be promised again.
LIFE: Mapping[tuple[ReservationState, ReservationEvent], ReservationState] = {
    ("asked for", "promised"): "kept",
    ("kept", "promised"): "kept",  # some of its turns again
    ("cut off", "promised"): "kept",
    ("asked for", "cut off"): "cut off",  # as a former master left it
    ("kept", "cut off"): "cut off",
    ("kept", "over"): "over",
    ("cut off", "over"): "over",
    ("over", "promised"): "kept",  # a change or a deletion that could not be stored is undone
    ("over", "cut off"): "cut off",
}


@dataclass(slots=True, eq=False)
class Reservation:
    """An accepted reservation. ``turns`` by their keys; a recurring one has turns from ``next_turn`` on to be
    planned.
    """

    id: str
    owner: str
    request: Request
    sequence: int
    turns: dict[str, Turn] = field(default_factory=dict)
    next_turn: int = 0
    #: Turns removed by a loss of capacity, by their keys; they are promised again if it returns in time.
    cut: dict[str, Cut] = field(default_factory=dict)
    state: ReservationState = "asked for"
    recurrence: Recurrence | None = field(init=False)

    def __post_init__(self) -> None:
        self.recurrence = None if self.request.every is None else Recurrence(self.request)

    @property
    def pieces(self) -> list[Piece]:
        """Return what all its turns promise."""
        return [piece for turn in self.turns.values() for piece in turn.pieces]

    def step(self, event: ReservationEvent) -> None:
        """Take the next step of its life. Raises: TransitionError."""
        self.state = next_state(LIFE, self.state, event)
