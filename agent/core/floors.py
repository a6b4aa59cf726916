"""Refuse commands that could not run, from any request: limits that are too low, texts that no process can have."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from penstock.model import TaskRequest
from penstock.model.container import wrong_texts
from penstock.model.floors import limits_too_small
from penstock.wire.errors import bad_request


def check(found: Iterable[tuple[str, str, str]], where: str) -> None:
    """Refuse the first of the values ``found`` (name, error, remedy); ``where`` begins the field's name.

    Raises:
        RpcError: ``bad_request``: a value is wrong; the message names it.
    """
    for name, wrong, remedy in found:
        raise bad_request(wrong, field=f"{where}{name}", remedy=remedy)


def check_tasks(tasks: Sequence[TaskRequest], known: Container[str]) -> None:
    """Check the commands of tasks, except those asked for before (``known``): an agent of an earlier version may have
    accepted one, and a refusal would end the other tasks of the request, which may run.

    Raises:
        RpcError: ``bad_request``: a command could not run; the message names the field.
    """
    for number, task in enumerate(tasks):
        if task.command is not None and task.task not in known:
            check(limits_too_small(task.command.limits), f"tasks[{number}].command.limits.")
            check(wrong_texts(task.command), f"tasks[{number}].command.")
