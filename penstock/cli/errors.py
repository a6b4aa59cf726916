"""A failure that a command expects: one line for the user, and an exit status."""

from __future__ import annotations


class CommandError(Exception):
    """``status`` 2 for what the user wrote, 1 for what the world is like."""

    def __init__(self, message: str, *, status: int = 1, of_command: bool = True) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status
        self.of_command = of_command


def usage_error(message: str) -> CommandError:
    """Bad input: what is wrong where, and what would do."""
    return CommandError(message, status=2)
