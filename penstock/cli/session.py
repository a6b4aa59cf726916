"""A command's conversation with the agent, with every expected failure turned into one line."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.cli.errors import CommandError
from penstock.cli.moments import with_local_times
from penstock.cli.statuses import Status
from penstock.client import AgentUnavailable
from penstock.wire.errors import ErrorCode, RpcError

T = TypeVar("T")


def converse(work: Coroutine[Any, Any, T], *, named: str = "") -> T:
    """Run a command's coroutine. ``named`` is the field of requests for what the user named: ``container``.

    Raises:
        KeyboardInterrupt: the user stopped it.
        CommandError: status 4 where there is nothing of the name that was given, 2 where the agent says that the
            request makes no sense, 126 or 127 where a command could not be run, 1 for every other failure.
    """
    try:
        return asyncio.run(work)
    except asyncio.CancelledError:  # by a signal that a command handles itself
        raise KeyboardInterrupt from None
    except AgentUnavailable as error:
        raise CommandError(str(error)) from None
    except RpcError as error:
        if error.code is not ErrorCode.BAD_REQUEST:
            status = error.body.exit_status or Status.FAILED
        else:
            status = Status.UNKNOWN if named and error.body.field == named else Status.USAGE
        text = with_local_times(str(error)) if error.code is ErrorCode.REFUSED else str(error)
        raise CommandError(text, status=status) from None
