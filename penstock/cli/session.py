"""A command's connection to the agent, with every expected failure turned into one line."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import paths
from penstock.cli.errors import CommandError
from penstock.cli.exit_statuses import Status
from penstock.client.errors import AgentUnavailable
from penstock.wire.errors import ErrorCode, RpcError

if TYPE_CHECKING:
    from penstock.client import AgentClient
    from penstock.client.blocking_requests import BlockingRequests

T = TypeVar("T")


@contextlib.contextmanager
def failures_told(*, named: str = "") -> Iterator[None]:
    """Turn the agent's errors, and its absence, into the command's errors.

    ``named`` is the request's field for the object that the user named, such as ``container``.

    Raises:
        CommandError: status 4 if that object does not exist, 2 if the agent rejects the request as invalid, 126 or 127
            if a command could not be run, 1 for every other failure.
    """
    try:
        yield
    except AgentUnavailable as error:
        raise CommandError(str(error)) from None
    except RpcError as error:
        if error.code is not ErrorCode.BAD_REQUEST:
            status = error.body.exit_status or Status.FAILED
        else:
            status = Status.UNKNOWN if named and error.body.field == named else Status.USAGE
        raise CommandError(_text(error, named), status=status, limit=error.body.limit) from None


def converse(work: Coroutine[Any, Any, T], *, named: str = "") -> T:
    """Run a command's coroutine; ``named`` and errors: see :func:`failures_told`.

    Raises:
        KeyboardInterrupt: the user interrupted it.
    """
    import asyncio  # not at the top: commands that block do without it (penstock.client.session)

    with failures_told(named=named):
        try:
            return asyncio.run(work)
        except asyncio.CancelledError:  # by a signal that the command handles itself
            raise KeyboardInterrupt from None


def asked(command: str, work: Callable[[BlockingRequests], Coroutine[Any, Any, T]], *, named: str = "") -> T:
    """Connect to this host's agent, and run a command's requests; ``named`` and errors: see :func:`failures_told`.

    Raises:
        CommandError: there is no agent, or it answered with an error.
    """
    from penstock.client.blocking_requests import asked as asked_of

    with failures_told(named=named):
        return asked_of(paths.agent_socket(), f"penstock {command}", work)


def with_agent(command: str, work: Callable[[AgentClient], Awaitable[T]], *, named: str = "") -> T:
    """Connect to this host's agent, and run a command's work with that connection; see :func:`converse`.

    For work that waits for anything but answers to its requests (:func:`asked`).

    Raises:
        CommandError: there is no agent, or it answered with an error.
        KeyboardInterrupt: the user interrupted it.
    """
    from penstock.client import AgentClient

    async def connected() -> T:
        async with await AgentClient.connect(client=f"penstock {command}") as agent:
            return await work(agent)

    return converse(connected(), named=named)


def _text(error: RpcError, named: str) -> str:
    """Return the error as text, without the request's field where the message itself names the object."""
    text = str(error)
    if error.body.field and (error.code is ErrorCode.REFUSED or error.body.field == named):
        text = text.removeprefix(f"{error.body.field}: ")
    if error.code is not ErrorCode.REFUSED:
        return text
    from penstock.cli.local_times import with_local_times

    return with_local_times(text)
