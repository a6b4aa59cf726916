"""PURE. The cluster's agenda: requests for reservations, their promises, and their changes (Rayon §5.1, §5.2).

It has a method for each call of the paper's interface (createRes, updateRes, deleteRes, listRes), one for passing time,
and one for the adapter: where capacity is lost, turns that no longer fit are removed, newest first, and planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from master.reservations.effort import RUN
from master.reservations.gree import Gree, Placed
from master.reservations.plan import Plan, Steps, clipped
from master.reservations.quotas import Quotas
from master.reservations.rdl import (
    Bundle,
    Expression,
    Request,
    Wording,
    atoms_of,
    infeasible,
    normalized,
)
from master.reservations.reservation import Reservation
from master.reservations.sharing import Instantaneous, Integral
from master.reservations.turns import Cut, Turn, fits, remaining
from penstock.model.units import counted

#: Most turns of a user. All turns of a request are planned at once, and each turn is looked at in each step.
MOST_TURNS = 10_000
_TOO_MUCH = "the rdl takes too long to plan: write fewer atoms, longer leases or a longer period (every)"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A turn that can no longer be kept, or could not be planned when its time came, and the reason."""

    id: str
    owner: str
    turn: str
    why: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A turn that was cut and is promised again."""

    id: str
    owner: str
    turn: str


class Agenda:
    """``horizon``: number of steps ahead to which recurring and open-ended reservations are planned."""

    def __init__(
        self,
        capacity: Bundle,
        planner: Callable[[Plan], Gree],
        *,
        horizon: int,
        policies: Sequence[Instantaneous | Integral] = (),
        wording: Wording | None = None,
    ) -> None:
        """``wording`` formats steps for messages."""
        self.plan = Plan(capacity)
        self._planner = planner(self.plan)
        self._horizon = horizon
        self._wording = wording or Wording()
        self.quotas = Quotas(self.plan, policies, self._wording.time)
        self._known: dict[str, Reservation] = {}  # those that are kept or cut off
        self._sequence = 0

    def reservations(self, owner: str | None = None) -> list[Reservation]:
        """Return the kept reservations of one owner or of all, in the order of acceptance."""
        kept = [one for one in self._known.values() if one.state == "kept" and (owner is None or one.owner == owner)]
        return sorted(kept, key=lambda one: one.sequence)

    def known(self, id: str) -> Reservation | None:  # noqa: A002 - the field's name
        """Return a reservation that is kept, or that is cut off and may be given back; None where there is none."""
        return self._known.get(id)

    def get(self, id: str) -> Reservation | None:  # noqa: A002 - the field's name
        """Return a kept reservation; None where there is none."""
        one = self._known.get(id)
        return one if one is not None and one.state == "kept" else None

    def create(self, id: str, owner: str, request: Request, now: int) -> str:  # noqa: A002 - the field's name
        """Promise a reservation; return why that is impossible, or an empty string.

        Raises: KeyError: the id exists.
        """
        if id in self._known:
            raise KeyError(f"the reservation {id} exists")
        self._sequence += 1
        one = Reservation(id, owner, request, self._sequence)
        return self._create(one, now, None)

    def _create(self, one: Reservation, now: int, before: Steps | None) -> str:
        """``before``: the amounts of the reservation that this one replaces."""
        why = self._plan_turns(one, now, before)
        if why:
            self._release(one, now)
        else:
            one.step("promised")
            self._known[one.id] = one
        return why

    def update(self, id: str, request: Request, now: int) -> str:  # noqa: A002 - the field's name
        """Replace a reservation; return why that is impossible, and then keep the old one.

        Raises: KeyError: there is none.
        """
        old = self._kept(id)
        self._release(old, now)
        before = Steps.sum_of(clipped(old.pieces, now))
        why = self._create(Reservation(id, old.owner, request, old.sequence), now, before)
        if why:
            for each in old.turns.values():
                self.plan.add(each.key, each.pieces)
                self.quotas.take_again(old.owner, each.pieces, now)
        else:
            old.step("over")
        return why

    def delete(self, id: str, now: int = 0) -> None:  # noqa: A002 - the field's name
        """Delete a reservation; its time from ``now`` on is free again.

        Raises: KeyError: there is none.
        """
        one = self._kept(id)
        self._release(one, now)
        self._end(one)

    def give_up(self, id: str) -> None:  # noqa: A002 - the field's name
        """Drop a reservation that was cut off for good."""
        if (one := self._known.get(id)) is not None:
            self._end(one)

    def restore(self, one: Reservation, *, cut_off: bool = False) -> None:
        """Restore a reservation as it was promised; ``cut_off``: it had no promise any more.

        Raises: KeyError: the id exists.
        """
        if one.id in self._known:
            raise KeyError(f"the reservation {one.id} exists")
        one.step("cut off" if cut_off else "promised")
        self._known[one.id] = one
        if cut_off:
            return
        for each in one.turns.values():
            self.plan.add(each.key, each.pieces)
            self.quotas.take(one.owner, each.pieces)
        self._sequence = max(self._sequence, one.sequence)

    def advance(self, now: int) -> list[Dropped]:
        """Advance the time: remove finished turns, and plan turns that enter the horizon, if possible."""
        dropped: list[Dropped] = []
        counted_since = self.quotas.advance(now)
        for one in self.reservations():
            for each in [each for each in one.turns.values() if each.ends <= now]:
                self._drop(one, each, now)
            self._planner.effort.renew()
            for number in self._in_sight(one, now):
                one.next_turn = number + 1
                why = self._plan_turn(one, number, now, None)
                if why:
                    dropped.append(Dropped(one.id, one.owner, f"{one.id}+{number}", why))
            for key in [key for key, cut in one.cut.items() if cut.over(now)]:
                del one.cut[key]
            if not one.turns and not one.cut and not self._goes_on(one, now):
                self._end(one)
        self.plan.drop_past(counted_since)
        return dropped

    def repair(self, now: int, until: int | None = None) -> list[Dropped]:
        """Plan again what exceeds the capacity before step ``until``; return the dropped turns."""
        moved: list[tuple[Reservation, Turn]] = []
        newest_first = self.reservations()[::-1]
        while (step := self.plan.overcommitted(now, until)) is not None:
            holding = ((one, each) for one in newest_first for each in one.turns.values() if each.holds(step))
            found = next(holding, None)
            if found is None:  # no turn holds anything then
                break
            self._drop(*found, now)
            moved.append(found)
        return self._anew(moved, now)

    def give_back(self, now: int) -> list[Returned]:
        """Promise cut turns again where there is room now, the oldest first. Drop those that can no longer be kept."""
        returned: list[Returned] = []
        for one in sorted(self._known.values(), key=lambda one: one.sequence):
            for key, cut in list(one.cut.items()):
                found = self._again(one.owner, cut, now)
                if found is not None:
                    del one.cut[key]
                    one.turns[key] = found
                    one.step("promised")
                    returned.append(Returned(one.id, one.owner, key))
                elif cut.over(now):
                    del one.cut[key]
            if one.state == "cut off" and not one.cut:
                self._end(one)
        return returned

    # ------------------------------------------------------------ inside

    def _kept(self, id: str) -> Reservation:  # noqa: A002 - the field's name
        if (one := self.get(id)) is None:
            raise KeyError(id)
        return one

    def _end(self, one: Reservation) -> None:
        one.step("over")
        del self._known[one.id]

    def _plan_turns(self, one: Reservation, now: int, before: Steps | None) -> str:
        """Plan all turns within the horizon, or none; return why not."""
        self._planner.effort.renew()
        if one.request.every is None:
            return self._plan_turn(one, None, now, before)
        recurrence, numbers = one.recurrence, self._in_sight(one, now)
        assert recurrence is not None
        while numbers and recurrence.begins(numbers[0]) < now and infeasible(recurrence.turn(numbers[0]), now):
            numbers = numbers[1:]  # too late for that turn
        if not numbers:
            return "no turn of it begins within the plan's horizon, and before its end if it has one"
        others = sum(len(each.turns) for each in self.reservations(one.owner) if each.id != one.id)
        if len(numbers) + others > MOST_TURNS:
            turns = counted(len(numbers), "turn") + (
                f" of it, and {others} of other reservations," if others else " of it"
            )
            return f"{turns} lie within the plan's horizon; at most {MOST_TURNS} of a user: write a longer period"
        for number in numbers:
            one.next_turn = number + 1
            why = self._plan_turn(one, number, now, before)
            if why:
                return f"turn {number}: {why}"
        return ""

    def _plan_turn(self, one: Reservation, number: int | None, now: int, before: Steps | None) -> str:
        if number is None or one.recurrence is None:
            expression, key = normalized(one.request.expression), one.id
        else:
            expression, key = one.recurrence.turn(number), f"{one.id}+{number}"
        placed, why = self._promise(one.owner, key, expression, now, before)
        if placed is not None:
            one.turns[key] = Turn(key, expression, placed)
            return ""
        if self._planner.effort.exhausted:
            return _TOO_MUCH
        most = Bundle.of(self.plan.capacity.highest(now))
        return why or infeasible(expression, now, most, self._wording) or "no room next to the existing promises"

    def _in_sight(self, one: Reservation, now: int) -> range:
        """Return the numbers of unplanned turns that begin before the horizon."""
        if one.recurrence is None:
            return range(0)
        numbers = one.recurrence.turns(now, now + self._horizon)
        return range(max(one.next_turn, numbers.start), numbers.stop)

    def _goes_on(self, one: Reservation, now: int) -> bool:
        return one.request.every is not None and (one.request.until is None or now < one.request.until)

    def _last(self, expression: Expression, now: int) -> int:
        """Return the last step at which the expression may lie."""
        finishes = [atom.finish for atom in atoms_of(expression)]
        return max(now + self._horizon, *(finish for finish in finishes if finish is not None), 0)

    def _promise(
        self, owner: str, key: str, expression: Expression, now: int, before: Steps | None
    ) -> tuple[Placed | None, str]:
        """Plan a promise within the owner's quota; or None with the reason, which is empty where there is no room at
        all.
        """
        before_runs = self.quotas.examined
        try:
            return self._within_quota(owner, key, expression, now, before)
        finally:
            self._planner.effort.spend(RUN * (self.quotas.examined - before_runs))

    def _within_quota(
        self, owner: str, key: str, expression: Expression, now: int, before: Steps | None
    ) -> tuple[Placed | None, str]:
        last = self._last(expression, now)
        placed = self._planner.promise(key, expression, now, last)
        if placed is None or not (why := self.quotas.accept(owner, [*chain.from_iterable(placed)], None, before)):
            return placed, ""
        self.plan.remove(key)
        for limit in self.quotas.limits(owner, expression, now, last, before):
            with self.plan.limited(limit):
                placed = self._planner.promise(key, expression, now, last)
                if placed is None and before is None:  # later limits leave less room
                    break
                if placed is not None and not self.quotas.accept(owner, [*chain.from_iterable(placed)], limit, before):
                    return placed, ""
                if placed is not None:
                    self.plan.remove(key)
        return None, why

    def _release(self, one: Reservation, now: int) -> None:
        for each in one.turns.values():
            self.plan.remove(each.key)
            self.quotas.release(one.owner, each.pieces, now)

    def _drop(self, one: Reservation, each: Turn, now: int) -> None:
        self.plan.remove(each.key)
        self.quotas.release(one.owner, each.pieces, now)
        del one.turns[each.key]

    def _again(self, owner: str, cut: Cut, now: int) -> Turn | None:
        """Return a cut turn, planned again: unchanged; or everything not yet given, at another time; or the rest of it,
        where some of its time was missed.
        """
        turn, left, coming = cut.turn, cut.left(), clipped(cut.turn.pieces, now)
        fitting = bool(coming) and fits(self.plan, coming)
        if not fitting or cut.missed(now):
            placed = self._planned_anew(turn.key, left, now)
            if placed is not None:
                found = Turn(turn.key, left, placed)
                self.quotas.take(owner, found.pieces)
                return found
        if not fitting:
            return None
        found = Turn(turn.key, turn.expression, cut.rest(now)) if cut.missed(now) else turn
        self.plan.add(turn.key, found.pieces)
        self.quotas.take_again(owner, found.pieces, now)
        return found

    def _planned_anew(self, key: str, left: Expression, now: int) -> Placed | None:
        """Plan what is left of a turn that was promised, whatever other turns took."""
        self._planner.effort.renew()
        return self._planner.promise(key, left, now, self._last(left, now))

    def _anew(self, moved: list[tuple[Reservation, Turn]], now: int) -> list[Dropped]:
        """Plan moved turns again, the oldest first; return those dropped."""
        dropped = []
        for one, each in sorted(moved, key=lambda pair: (pair[0].sequence, pair[1].key)):
            left = remaining(each.expression, each.placed, now)
            placed = self._planned_anew(each.key, left, now)
            if placed is not None:
                one.turns[each.key] = Turn(each.key, left, placed)
                self.quotas.take(one.owner, one.turns[each.key].pieces)
                continue
            one.cut[each.key] = Cut(each, now)
            why = "the cluster has less than was promised, and no room for it in its time"
            dropped.append(Dropped(one.id, one.owner, each.key, why))
        for one, _ in moved:  # several turns of one may be among them
            if one.state == "kept" and not one.turns and not self._goes_on(one, now):
                one.step("cut off")
        return dropped
