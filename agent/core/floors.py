"""Refuse limits so low that nothing would run, from any request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.model import TaskRequest
from penstock.model.floors import limits_too_small
from penstock.wire.errors import bad_request


def check(found: Iterable[tuple[str, str, str]], where: str) -> None:
    """Refuse the first of the values ``found`` by :mod:`penstock.model.floors`; ``where`` begins the field's name.

    Raises:
        RpcError: ``bad_request``: a value is too low; the message names it.
    """
    for name, wrong, remedy in found:
        raise bad_request(wrong, field=f"{where}{name}", remedy=remedy)


def check_tasks(tasks: Sequence[TaskRequest]) -> None:
    """Check the commands of tasks.

    Raises:
        RpcError: ``bad_request``: a limit of a command is too low; the message names it.
    """
    for number, task in enumerate(tasks):
        if task.command is not None:
            check(limits_too_small(task.command.limits), f"tasks[{number}].command.limits.")
