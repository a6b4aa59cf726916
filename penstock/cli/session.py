"""A command's conversation with the agent, with every expected failure turned into one line."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.cli.errors import CommandError
from penstock.client import AgentUnavailable
from penstock.wire.errors import ErrorCode, RpcError

T = TypeVar("T")


def converse(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine.

    Raises:
        KeyboardInterrupt: the user stopped it.
        CommandError: status 2 where the agent says that the request makes no sense, 126 or 127 where a command could
            not be run, 1 for every other failure.
    """
    try:
        return asyncio.run(work)
    except asyncio.CancelledError:  # by a signal that a command handles itself
        raise KeyboardInterrupt from None
    except AgentUnavailable as error:
        raise CommandError(str(error)) from None
    except RpcError as error:
        status = 2 if error.code is ErrorCode.BAD_REQUEST else error.body.exit_status or 1
        raise CommandError(str(error), status=status) from None
