"""Connections per user, and the limits on them; connections that have not sent hello count too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from agent import process
from agent.peer_credentials import PeerCredentials
from penstock.model.units import counted
from penstock.transport.shared_peer import UserBudget
from penstock.wire.errors import RpcError, refused, unavailable

#: A client sends hello at once. One that does not is closed, and the number of these per user is limited.
HELLO_S = 10.0
SILENT_PER_USER = 256


class Connections:
    """The connections to the framework socket."""

    def __init__(self, most: Callable[[], int]) -> None:
        """``most`` returns the limit per user, except operators (0: none)."""
        self._most = most
        self._open: Counter[int] = Counter()  # by uid
        self._silent: Counter[int] = Counter()  # those that have not sent hello, by uid
        self._budgets: dict[int, UserBudget] = {}

    def made(self, uid: int) -> UserBudget:
        """Count a new connection without hello; return the budget shared by the user's connections."""
        self._open[uid] += 1
        self._silent[uid] += 1
        budget = self._budgets.get(uid)
        if budget is None:
            budget = self._budgets[uid] = UserBudget()
        return budget

    def why_not(self, caller: PeerCredentials, descriptor: int) -> RpcError | None:
        """Return why a counted connection is refused, or None."""
        user, has, silent, most = caller.user, self._open[caller.uid], self._silent[caller.uid], self._most()
        if descriptor >= process.descriptors_for_clients():
            return unavailable("the agent is short of file descriptors", remedy="close connections, or try later")
        if silent > SILENT_PER_USER:
            return refused(
                f"{user} has {counted(silent, 'connection')} without hello", remedy="send hello, or close some"
            )
        if most and has > most and not caller.operator:
            return refused(
                f"{user} has {counted(has, 'connection')}; user_max_connections is {most}",
                remedy="close some, or ask an operator to raise user_max_connections",
            )
        return None

    def greeted(self, uid: int) -> None:
        """Count a hello."""
        _one_less(self._silent, uid)

    def gone(self, uid: int, *, greeted: bool) -> None:
        """Count a closed connection."""
        if not greeted:
            _one_less(self._silent, uid)
        _one_less(self._open, uid)
        if uid not in self._open:
            self._budgets.pop(uid, None)


def _one_less(counter: Counter[int], uid: int) -> None:
    counter[uid] -= 1
    if not counter[uid]:
        del counter[uid]
