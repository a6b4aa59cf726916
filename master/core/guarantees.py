"""The promises that the plan makes to the present jobs, as guarantees of the ordering (Rayon §5.2)."""

from __future__ import annotations

from master.core.membership import Membership
from master.core.plan import NothingPromised, Plan
from master.core.views import held_by
from master.ordering import Guarantee


class Guarantees:
    """Compares the present promises with the holdings of the reservations' jobs."""

    def __init__(self, members: Membership) -> None:
        self.plan: Plan = NothingPromised()
        self._members = members

    def follow(self, plan: Plan) -> None:
        """Take the promises from this plan from now on."""
        self.plan = plan

    def of(self, at: float) -> tuple[dict[str, str], dict[str, Guarantee]]:
        """Return job → its reservation, and reservation → the present promise to its jobs together and what they hold.

        ``at`` is Unix time. Reservations without jobs, or without a present promise, are left out.
        """
        members = {job.job: job.reservation for job in self._members.jobs.values() if job.reservation}
        if not members:
            return {}, {}
        promised = self.plan.promised(at)
        found = {
            reservation: Guarantee((one.cores, 0.0, 0.0, one.memory_bytes), [0.0] * 4, one.bundles)
            for reservation in dict.fromkeys(members.values())
            if (one := promised.get(reservation)) is not None
        }
        for name, reservation in members.items():
            if reservation in found:
                found[reservation].take(held_by(self._members.nodes, self._members.jobs[name]))
        return members, found
