"""Refuse commands that could not run, from any request: limits that are too low, texts that no process can have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.model import ContainerSpec, TaskRequest
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


def check_command(spec: ContainerSpec, where: str) -> None:
    """Check the limits and the texts of a command; ``where`` begins the field's name.

    Raises:
        RpcError: ``bad_request``: the command could not run; the message names the field.
    """
    check(limits_too_small(spec.limits), f"{where}limits.")
    check(wrong_texts(spec), where)


def check_tasks(tasks: Sequence[TaskRequest]) -> None:
    """Check the commands of tasks.

    Raises:
        RpcError: ``bad_request``: a command could not run; the message names the field.
    """
    for number, task in enumerate(tasks):
        if task.command is not None:
            check_command(task.command, f"tasks[{number}].command.")
