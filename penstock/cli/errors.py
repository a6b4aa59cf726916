"""A failure that a command expects: one line for the user, and an exit status."""

from __future__ import annotations

from penstock.cli.statuses import Status


class CommandError(Exception):
    """``status`` is one of :class:`penstock.cli.statuses.Status`, or what a command that was run returned."""

    def __init__(self, message: str, *, status: int = Status.FAILED, of_command: bool = True) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status
        self.of_command = of_command


def usage_error(message: str) -> CommandError:
    """Bad input: what is wrong where, and what would do."""
    return CommandError(message, status=Status.USAGE)
