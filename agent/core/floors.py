"""Refuse commands that could not run, from any request: limits that are too low, texts that no process can have."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from penstock.model import TaskRequest
from penstock.model.container import wrong_texts
from penstock.model.floors import limits_too_small
from penstock.wire.errors import RpcError, bad_request


def check(found: Iterable[tuple[str, str, str]], where: str) -> None:
    """Refuse the first of the values ``found`` (name, error, remedy); ``where`` begins the field's name.

    Raises:
        RpcError: ``bad_request``: a value is wrong; the message names it.
    """
    for name, wrong, remedy in found:
        raise bad_request(wrong, field=f"{where}{name}", remedy=remedy)


def refused_tasks(tasks: Sequence[TaskRequest], known: Container[str], *, recovered: bool) -> dict[str, RpcError]:
    """Return task → ``bad_request`` with the field, for each task whose command could not run.

    Tasks asked for before (``known``) are not among them: an agent of an earlier version may have accepted one, and it
    may run. In a job of an earlier agent (``recovered``) tasks that run may be unknown until the master names their
    nodes. So no limit that is too low is refused there; a list of processors is, as its length may stop an agent.
    """
    refused = {}
    for number, task in enumerate(tasks):
        if task.command is not None and task.task not in known:
            limits = limits_too_small(task.command.limits)
            try:
                check((one for one in limits if not recovered or one[0] == "cpus"), f"tasks[{number}].command.limits.")
                check(wrong_texts(task.command), f"tasks[{number}].command.")
            except RpcError as error:
                refused[task.task] = error
    return refused
