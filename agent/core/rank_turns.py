"""Turns of starving jobs: a tenant's job that has long not been its first is first until the next sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: The time between two turns of a tenant's jobs, as a multiple of the length of one.
TURNS_APART = 10
#: A turn ends with the next sample, which may come a little early; rankings well before it do not end the turn.
_TURN = 0.9


@dataclass(slots=True)
class _Turn:
    """The job that has the turn ("": none), the turn's end, and the time before which no other turn starts."""

    job: str = ""
    until: float = 0.0
    next_from: float = 0.0


class StarvingTurns:
    """Gives turns among the jobs of each tenant; without tenants all jobs are of one."""

    def __init__(self) -> None:
        self._first_at: dict[str, float] = {}  # job → when it was last the first, or came
        self._turns: dict[str, _Turn] = {}

    def give(
        self, orders: Mapping[str, Sequence[str]], now: float, *, wait_max_s: float, tick_s: float
    ) -> dict[str, str]:
        """Return tenant → the job that has the turn, or "". ``orders`` has the jobs of each tenant, the first first;
        ``tick_s`` is the time between samples.
        """
        self._first_at = {job: self._first_at.get(job, now) for order in orders.values() for job in order}
        self._turns = {tenant: turn for tenant, turn in self._turns.items() if tenant in orders or now < turn.next_from}
        given: dict[str, str] = {}
        for tenant, order in orders.items():
            turn = self._turns.setdefault(tenant, _Turn())
            if now >= turn.next_from:
                longest = min(order[1:], key=self._first_at.__getitem__, default="")
                turn.job = longest if longest and now - self._first_at[longest] >= wait_max_s else ""
                if turn.job:
                    turn.until, turn.next_from = now + _TURN * tick_s, now + TURNS_APART * tick_s
            elif turn.job and now >= turn.until:
                turn.job = ""  # its turn is over
            given[tenant] = turn.job if turn.job in order else ""
            self._first_at[given[tenant] or order[0]] = now
        return given
