"""A failure that a command expects: one line for the user, and an exit status."""

from __future__ import annotations

import sys

from penstock.cli.exit_statuses import Status
from penstock.cli.plain_text import printable


class CommandError(Exception):
    """``status`` is one of :class:`penstock.cli.exit_statuses.Status`, or the exit status of a command that was run.
    ``limit`` is the agent's name of the strict limit that is not enforced, if the message is about one.
    """

    def __init__(self, message: str, *, status: int = Status.FAILED, of_command: bool = True, limit: str = "") -> None:
        super().__init__(" ".join(message.split()))
        self.status = status
        self.of_command = of_command
        self.limit = limit


def note(command: str, text: str) -> None:
    """Print one line beside the command's output, without the control characters of names in it; ``command`` "": of
    none.
    """
    line = f"penstock {command}: {text}" if command else f"penstock: {text}"
    print(printable(" ".join(line.expandtabs().splitlines())), file=sys.stderr, flush=True)


def usage_error(message: str) -> CommandError:
    """Return an error in the user's input; the message says how to correct it."""
    return CommandError(message, status=Status.USAGE)
