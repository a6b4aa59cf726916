"""The states of a job, in the terms that every command, page and document uses."""

from __future__ import annotations

import enum


class JobStanding(enum.StrEnum):
    """The state of a job that has not ended."""

    EXPECTED = "expected"  # its origin has not described it yet
    WAITING = "waiting"  # for admission
    ADMITTED = "admitted"  # none of its tasks has been placed yet
    RUNNING = "running"
    CANCELLING = "cancelling"


def standing(*, admitted: bool, active: bool, done: bool, cancelled: bool = False) -> JobStanding:
    """Return a described job's state; ``active``: it holds slots or has placed tasks; ``done``: some tasks ended.

    A job that is not admitted may be active: on slack, which needs no admission.
    """
    if cancelled:
        return JobStanding.CANCELLING
    if active or (admitted and done):
        return JobStanding.RUNNING
    return JobStanding.ADMITTED if admitted else JobStanding.WAITING
