"""A connection to the agent, as the node knows it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field


@dataclass(slots=True)
class Session:
    """A connection, and the jobs and containers that depend on it.

    :class:`agent.core.membership.Membership` changes ``jobs``, :meth:`run_in` and :meth:`container_ended` change
    ``container``.
    """

    session: int
    user: str
    client: str
    operator: bool = False
    container: str = ""  # the container that the client runs in
    jobs: set[str] = field(default_factory=set)
    #: Containers of whose end the connection is notified, and those that end with it.
    _attached: set[str] = field(init=False, default_factory=set)
    _launched: set[str] = field(init=False, default_factory=set)
    #: Jobs that the connection leaves in order when it closes → the job that continues the work, or "".
    _left: dict[str, str] = field(init=False, default_factory=dict)
    #: Containers of processes that the connection has lent, or found lent already → the job it lent them for.
    _lent: dict[str, str] = field(init=False, default_factory=dict)

    @property
    def disconnected(self) -> str:
        """The reason for ending its jobs and containers."""
        return f"its client {self.client or 'without a name'} disconnected"

    @property
    def launched(self) -> AbstractSet[str]:
        """The containers that end with the connection, unless they are detached."""
        return self._launched

    @property
    def lent(self) -> Mapping[str, str]:
        """Container of processes that the connection has lent → the job it lent them for."""
        return self._lent

    def run_in(self, container: str) -> None:
        """Record the container that the client runs in."""
        self.container = container

    def launch(self, container: str) -> None:
        """Notify the connection of a container's end, and end the container with the connection."""
        self._attached.add(container)
        self._launched.add(container)

    def attach(self, container: str) -> None:
        """Notify the connection of a container's end."""
        self._attached.add(container)

    def lend(self, container: str, job: str) -> None:
        """Record that the connection lends a container's processes for a job."""
        self._lent[container] = job

    def detach(self, container: str) -> None:
        """Make a container independent of the connection, which is not notified of its end."""
        self._attached.discard(container)
        self._launched.discard(container)

    def container_ended(self, container: str) -> bool:
        """Drop a container that has ended; return whether the connection is to be notified."""
        attached = container in self._attached
        self.detach(container)
        self._lent.pop(container, None)
        if self.container == container:
            self.container = ""
        return attached

    def leave(self, job: str, merged_into: str) -> None:
        """Record that the connection, once it closes, leaves a job in order."""
        self._left[job] = merged_into

    def left(self, job: str) -> str | None:
        """Return the job that continues the work of one left in order, or ""; None: it was not left in order."""
        return self._left.get(job)
