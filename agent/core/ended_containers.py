"""Ended containers: each user's latest are kept, so that no user's results displace another's."""

from __future__ import annotations

from collections import deque

from agent.core.records import ContainerRecord

#: The bound on all users together, as a multiple of the bound per user.
USERS_WORTH = 20


class EndedContainers:
    """Records by id, in the order of their ends; a user's oldest is dropped first.

    When the bound on all users together is exceeded, the user with the most records loses the oldest one: a user with
    few loses none to a user with many.
    """

    def __init__(self, keep: int) -> None:
        self.by_id: dict[str, ContainerRecord] = {}
        self._of_user: dict[str, deque[str]] = {}
        self._keep = keep

    def add(self, record: ContainerRecord) -> list[str]:
        """Keep one more record; return the ids dropped, possibly including its own."""
        self.by_id[record.container] = record
        self._of_user.setdefault(record.user, deque()).append(record.container)
        return self._trim(record.user) + self._trim_all()

    def keep(self, keep: int) -> list[str]:
        """Keep the latest ``keep`` of each user from now on; return the ids dropped."""
        self._keep = keep
        dropped = [container for user in list(self._of_user) for container in self._trim(user)]
        return dropped + self._trim_all()

    def _trim(self, user: str) -> list[str]:
        dropped = []
        while len(self._of_user.get(user, ())) > self._keep:
            dropped.append(self._drop_oldest(user))
        return dropped

    def _trim_all(self) -> list[str]:
        dropped = []
        while len(self.by_id) > USERS_WORTH * self._keep:
            dropped.append(self._drop_oldest(max(self._of_user, key=lambda user: len(self._of_user[user]))))
        return dropped

    def _drop_oldest(self, user: str) -> str:
        own = self._of_user[user]
        container = own.popleft()
        if not own:
            del self._of_user[user]
        del self.by_id[container]
        return container
