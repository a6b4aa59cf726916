"""Errors between a framework and its host's agent, besides the agent's own answers (``RpcError``)."""

from __future__ import annotations

from penstock.model.container import Ended, EndedBy
from penstock.wire.errors import RpcError


class AgentUnavailable(Exception):  # noqa: N818 - named for the message
    """There is no agent, or it was lost. The message is one line that names the socket and the remedy."""


class NotPlaced(Exception):  # noqa: N818 - named for the message
    """A task ended before it was placed on a node; ``ended`` is the cause."""

    def __init__(self, task: str, ended: Ended) -> None:
        super().__init__(f"task {task!r} was never placed: {ended.reason or ended.by.value}")
        self.task = task
        self.ended = ended


class JobCancelled(RuntimeError):  # noqa: N818 - named for the message
    """The job was cancelled by the user ``by`` (``penstock cancel``). None of its tasks is still running."""

    def __init__(self, name: str, by: str) -> None:
        super().__init__(name, by)  # the arguments of unpickling: workers on other hosts raise it, too
        self.name, self.by = name, by

    def __str__(self) -> str:
        return f"job {self.name!r} was cancelled by {self.by}"


def lost_at_restart(error: RpcError) -> Ended:
    """Return the end of a container that a restarted agent does not know; ``error`` is the agent's answer."""
    return Ended(by=EndedBy.LOST, reason=f"the agent was restarted and does not know it: {error.body.message}")


#: Messages for requests that may or may not have been executed: a second one could start the command twice.
LOST_WHILE_STARTING = "the agent went away while it was starting the command; `penstock status` tells whether it runs"
LOST_WHILE_ADOPTING = "the agent went away while it was adopting the process; `penstock status` tells whether it did"
