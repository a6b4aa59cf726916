"""Refuse limits so low that nothing would run, from any request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.model import Limits, Profile, TaskRequest
from penstock.model.floors import limits_too_small, profile_too_small, too_small
from penstock.wire.errors import bad_request


def check_limits(limits: Limits, where: str) -> None:
    """Check limits.

    Raises:
        RpcError: ``bad_request``: a limit is too low; the message names it.
    """
    _check(limits_too_small(limits), where)


def check_changes(changes: Mapping[str, object]) -> None:
    """Check changes of limits.

    Raises:
        RpcError: ``bad_request``: a limit is too low; the message names it.
    """
    _check(too_small(changes), "limits.")


def check_profile(profile: Profile) -> None:
    """Check a profile.

    Raises:
        RpcError: ``bad_request``: a value is too low; the message names the resource.
    """
    _check(profile_too_small(profile), "profile.")


def check_tasks(tasks: Sequence[TaskRequest]) -> None:
    """Check the commands of tasks.

    Raises:
        RpcError: ``bad_request``: a limit of a command is too low; the message names it.
    """
    for number, task in enumerate(tasks):
        if task.command is not None:
            check_limits(task.command.limits, f"tasks[{number}].command.limits.")


def _check(found: Iterator[tuple[str, str, str]], where: str) -> None:
    for name, wrong, remedy in found:
        raise bad_request(wrong, field=f"{where}{name}", remedy=remedy)
