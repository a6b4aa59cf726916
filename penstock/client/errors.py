"""What can go wrong between a framework and its host's agent, besides what the agent itself answers (``RpcError``)."""

from __future__ import annotations

import errno
from pathlib import Path

from penstock.model.container import Ended
from penstock.peer_credentials import UntrustedServerError


class AgentUnavailable(Exception):  # noqa: N818 - named for what the reader is told
    """No agent, or none any more. The message is one line that names the socket and the remedy."""


class NotPlaced(Exception):  # noqa: N818 - named for what the reader is told
    """A task ended before it got a node; ``ended`` says why."""

    def __init__(self, task: str, ended: Ended) -> None:
        super().__init__(f"task {task!r} was never placed: {ended.reason or ended.by.value}")
        self.task = task
        self.ended = ended


class JobCancelled(RuntimeError):  # noqa: N818 - named for what the reader is told
    """Somebody cancelled the job (``penstock cancel``); ``by`` says who. Nothing of it runs on."""

    def __init__(self, name: str, by: str) -> None:
        super().__init__(name, by)  # as it is pickled: workers of other hosts raise it, too
        self.name, self.by = name, by

    def __str__(self) -> str:
        return f"job {self.name!r} was cancelled by {self.by}"


def cannot_connect(socket: Path, error: OSError) -> AgentUnavailable:
    """One line for an operating system's refusal, or for a server of another user."""
    if isinstance(error, UntrustedServerError):
        return AgentUnavailable(str(error))
    if error.errno in {errno.ENOENT, errno.ECONNREFUSED}:
        return AgentUnavailable(f"no agent at {socket}; start one with `penstock up`")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return AgentUnavailable(f"not allowed to connect to {socket}; start an agent of your own with `penstock up`")
    return AgentUnavailable(f"cannot reach the agent at {socket}: {error.strerror or error}; is `penstock up` running?")


def refuses(socket: Path, error: Exception) -> AgentUnavailable:
    """The agent answered the first message of a connection with an error."""
    return AgentUnavailable(f"the agent at {socket} refuses this client: {error}")


def does_not_answer(socket: Path) -> AgentUnavailable:
    """The agent took the connection, and left its first message unanswered."""
    return AgentUnavailable(f"the agent at {socket} does not answer; see its log, or restart it")


def closed(socket: Path) -> AgentUnavailable:
    """The agent closed the connection, and did not say why."""
    return AgentUnavailable(f"the agent at {socket} closed the connection; see its log")


#: The end of a call of which nobody knows whether it was carried out: asking again could start a command twice.
LOST_WHILE_STARTING = "the agent went away while it was starting the command; `penstock status` tells whether it runs"
