"""Orders by hand: jobs put first by their owner or an operator take the places of other jobs in a policy's order.

Among the places that the policy gives a user's jobs, the named jobs get the first ones, in the user's order; the others
follow in the policy's order. So no other user gains or loses. Jobs named by an operator come before all other jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from master.ordering.policy import Key, Ranking, Reason
from penstock.model.resource_vector import SlotVector


@dataclass(frozen=True, slots=True)
class HandOrder:
    """The jobs to put first, in this order; ``by`` is the user that set it."""

    by: str
    jobs: tuple[str, ...]


def placed_by_hand(
    ranking: Ranking, users: Mapping[str, str], own: Mapping[str, HandOrder], of_all: HandOrder | None
) -> Ranking:
    """Apply orders by hand. ``users``: owner of each ranked job; ``own``: users' orders of their jobs; ``of_all``: an
    operator's order of all jobs. Return the ranking itself where no ranked job is named.
    """
    named = {job: order.by for user, order in own.items() for job in order.jobs if users.get(job) == user}
    named |= {job: of_all.by for job in of_all.jobs if job in users} if of_all is not None else {}
    if not named:
        return ranking

    def arranged(by_policy: list[str]) -> dict[str, str]:
        order = by_policy
        for user, wanted in own.items():
            order = _first(order, wanted.jobs, [at for at, job in enumerate(order) if users[job] == user])
        if of_all is not None:
            order = _first(order, of_all.jobs, range(len(order)))
        return dict(zip(order, by_policy, strict=True))

    order = ranking.order()
    by_key = sorted(order, key=lambda job: ranking.key(job, 0.0), reverse=True)
    return _ByHand(ranking, arranged(order), arranged(by_key), named)


def _first(order: Sequence[str], wanted: Sequence[str], places: Sequence[int]) -> list[str]:
    """Give the wanted jobs the first of these places, and the other jobs there the rest."""
    here = [order[at] for at in places]
    there = set(here)
    moved = dict.fromkeys([job for job in wanted if job in there] + here)
    arranged = list(order)
    for at, job in zip(places, moved, strict=True):
        arranged[at] = job
    return arranged


class _ByHand:
    """A ranking by hand. Each job is mapped to the job whose place it has: in ``queued`` by :meth:`order`, in
    ``placed`` by :meth:`key`, which for a policy of shares is another order.
    """

    def __init__(
        self, ranking: Ranking, queued: Mapping[str, str], placed: Mapping[str, str], named: Mapping[str, str]
    ) -> None:
        self._ranking = ranking
        self._queued = queued
        self._placed = placed
        self._named = named

    @property
    def whole_stages(self) -> bool:
        """Return the policy's value."""
        return self._ranking.whole_stages

    def key(self, job: str, score: float) -> Key:
        """Return the key of the job's place."""
        return self._ranking.key(self._placed[job], score)

    def charge(self, job: str, taken: SlotVector) -> bool:
        """Charge the place: a policy that counts holdings allows the same amount to the job that has the place."""
        return self._ranking.charge(self._placed[job], taken)

    def group(self, job: str) -> tuple[str, int]:
        """Return the group of the job's place."""
        return self._ranking.group(self._placed[job])

    def room(self, job: str) -> float:
        """Return the room of the job's place."""
        return self._ranking.room(self._placed[job])

    def order(self) -> list[str]:
        """Return the order by hand; unnamed jobs follow the policy."""
        return list(self._queued)

    def why(self, job: str) -> str:
        """Name the user who placed the job, and the policy's reason."""
        said = self._ranking.why(job)
        by = self._named.get(job)
        return f"put first by {by} (penstock jobs --order); else {said}" if by is not None else said

    def reason(self, job: str) -> Reason:
        """Name the user who placed the job, or note that others were placed before it, with the policy's reason."""
        reason, by = self._ranking.reason(job), self._named.get(job)
        if by is not None:
            return replace(reason, said=f"put first by {by} (penstock jobs --order); else {reason.said}")
        if self._queued[job] != job:
            return replace(reason, said=f"others were put before it by hand; else {reason.said}")
        return reason
