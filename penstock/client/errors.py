"""Errors between a framework and its host's agent, besides the agent's own answers (``RpcError``)."""

from __future__ import annotations

import errno
from pathlib import Path

from penstock.model.container import Ended
from penstock.peer_credentials import UntrustedServerError


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


def cannot_connect(socket: Path, error: OSError) -> AgentUnavailable:
    """Return the error for a failed ``connect()``, or for a server that runs as an untrusted user."""
    if isinstance(error, UntrustedServerError):
        return AgentUnavailable(str(error))
    if error.errno in {errno.ENOENT, errno.ECONNREFUSED}:
        return AgentUnavailable(f"no agent at {socket}; start one with `penstock up`")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return AgentUnavailable(f"not allowed to connect to {socket}; start an agent of your own with `penstock up`")
    return AgentUnavailable(f"cannot reach the agent at {socket}: {error.strerror or error}; is `penstock up` running?")


def refuses(socket: Path, error: Exception) -> AgentUnavailable:
    """Return the error for an agent that answered the greeting with an error."""
    return AgentUnavailable(f"the agent at {socket} refuses this client: {error}")


def does_not_answer(socket: Path) -> AgentUnavailable:
    """Return the error for an agent that accepted the connection but did not answer the greeting."""
    return AgentUnavailable(f"the agent at {socket} does not answer; see its log, or restart it")


def closed(socket: Path) -> AgentUnavailable:
    """Return the error for an agent that closed the connection without a reason."""
    return AgentUnavailable(f"the agent at {socket} closed the connection; see its log")


#: Message for a launch that may or may not have been executed: a second request could start the command twice.
LOST_WHILE_STARTING = "the agent went away while it was starting the command; `penstock status` tells whether it runs"
