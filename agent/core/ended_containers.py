"""Containers that have ended: each user's latest are remembered, so that no user's results push out another's."""

from __future__ import annotations

from collections import deque

from agent.core.records import ContainerRecord

#: All users together keep at most this many times what one user may keep.
USERS_WORTH = 20


class EndedContainers:
    """Records by id, in the order of their ends; the oldest of a user is dropped first.

    Past the bound on all users together, the user that has the most kept loses the oldest one: a user that has few
    loses none to a user that has many.
    """

    def __init__(self, keep: int) -> None:
        self.by_id: dict[str, ContainerRecord] = {}
        self._of_user: dict[str, deque[str]] = {}
        self._keep = keep

    def add(self, record: ContainerRecord) -> list[str]:
        """Remember one more; return the ids that are dropped, which may include its own."""
        self.by_id[record.container] = record
        self._of_user.setdefault(record.user, deque()).append(record.container)
        return self._trim(record.user) + self._trim_all()

    def keep(self, keep: int) -> list[str]:
        """Remember the latest ``keep`` of each user from now on; return the ids that are dropped."""
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
