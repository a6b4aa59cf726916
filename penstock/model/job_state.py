"""Where a job stands, in the words that every command, page and document uses."""

from __future__ import annotations

import enum


class JobStanding(enum.StrEnum):
    """A job that has not ended."""

    EXPECTED = "expected"  # its origin has not described it yet
    WAITING = "waiting"  # for its admission
    ADMITTED = "admitted"  # nothing of it has been placed yet
    RUNNING = "running"
    CANCELLING = "cancelling"


def standing(*, admitted: bool, active: bool, done: bool, cancelled: bool = False) -> JobStanding:
    """Return where a described job stands; ``active``: it holds slots or has placed tasks; ``done``: some ended.

    A job that is not admitted may be active: on slack, for which no admission is needed.
    """
    if cancelled:
        return JobStanding.CANCELLING
    if active or (admitted and done):
        return JobStanding.RUNNING
    return JobStanding.ADMITTED if admitted else JobStanding.WAITING
