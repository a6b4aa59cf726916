"""Places by hand: jobs that their owner, or an operator, has put first take the places of others in a policy's order.

Among the places that the policy gives a user's jobs, those that he named come first, in his order; the others follow as
the policy has them. So nobody else gains or loses. What an operator named comes first of all jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from master.ordering.policy import Key, Ranking, Reason
from master.ordering.view import Amounts


@dataclass(frozen=True, slots=True)
class HandOrder:
    """``jobs``, the first first, as ``by`` wants it."""

    by: str
    jobs: tuple[str, ...]


def placed_by_hand(
    ranking: Ranking, users: Mapping[str, str], own: Mapping[str, HandOrder], of_all: HandOrder | None
) -> Ranking:
    """``users`` says whose each job of the ranking is, ``own`` what users want of their jobs, ``of_all`` what an
    operator wants of all. The ranking itself where nobody has named a job of it."""
    named = {job: order.by for user, order in own.items() for job in order.jobs if users.get(job) == user}
    named |= {job: of_all.by for job in of_all.jobs if job in users} if of_all is not None else {}
    if not named:
        return ranking
    order = by_policy = ranking.order()
    for user, wanted in own.items():
        order = _first(order, wanted.jobs, [at for at, job in enumerate(order) if users[job] == user])
    if of_all is not None:
        order = _first(order, of_all.jobs, range(len(order)))
    return _ByHand(ranking, dict(zip(order, by_policy, strict=True)), order, named)


def _first(order: Sequence[str], wanted: Sequence[str], places: Sequence[int]) -> list[str]:
    """Have the wanted jobs take the first of these places, and the others that have one of them the rest."""
    here = [order[at] for at in places]
    there = set(here)
    moved = dict.fromkeys([job for job in wanted if job in there] + here)
    arranged = list(order)
    for at, job in zip(places, moved, strict=True):
        arranged[at] = job
    return arranged


class _ByHand:
    """``stands_for`` says of each job which job's place it has."""

    def __init__(
        self, ranking: Ranking, stands_for: Mapping[str, str], order: list[str], named: Mapping[str, str]
    ) -> None:
        self._ranking = ranking
        self._stands_for = stands_for
        self._order = order
        self._named = named

    @property
    def whole_stages(self) -> bool:
        """As the policy has it."""
        return self._ranking.whole_stages

    def key(self, job: str, score: float) -> Key:
        """That of the place."""
        return self._ranking.key(self._stands_for[job], score)

    def charge(self, job: str, taken: Amounts) -> bool:
        """The place is charged: where a policy counts what jobs hold, whoever has it gets as much as it allows for."""
        return self._ranking.charge(self._stands_for[job], taken)

    def room(self, job: str) -> float:
        """That of the place."""
        return self._ranking.room(self._stands_for[job])

    def order(self) -> list[str]:
        """By hand; the rest as the policy has it."""
        return self._order

    def why(self, job: str) -> str:
        """Who put it there, and what the policy says of it."""
        said = self._ranking.why(job)
        by = self._named.get(job)
        return f"put first by {by} (penstock jobs --order); else {said}" if by is not None else said

    def reason(self, job: str) -> Reason:
        """Say who put it there, or that others were put before it, and what the policy says of it."""
        reason, by = self._ranking.reason(job), self._named.get(job)
        if by is not None:
            return replace(reason, said=f"put first by {by} (penstock jobs --order); else {reason.said}")
        if self._stands_for[job] != job:
            return replace(reason, said=f"others were put before it by hand; else {reason.said}")
        return reason
