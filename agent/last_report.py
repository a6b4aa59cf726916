"""The record of what a stopped agent has reported of each container: the next agent reports what follows.

It is kept until the next agent has reported something itself: that one may end before it has.
"""

from __future__ import annotations

import time

from msgspec.structs import replace

from agent.core.job_cpu_times import KEY, ROOM, ReportedCpuTimes
from agent.journal import Journal

#: A record is valid for as long as an agent may take to be stopped and started again, in seconds. An older one is of a
#: time before a version ran that does not know of it: this version has reported more.
VALID_S = 300.0


def write(journal: Journal, cpu_s: dict[str, float]) -> None:
    """Record the CPU time of each container that has been reported."""
    journal.write(ROOM, KEY, ReportedCpuTimes(at=time.time(), cpu_s=cpu_s))


def renew(journal: Journal) -> None:
    """Leave the record of the agent before to the next one, as this one ends and has reported nothing."""
    for record in journal.read(ROOM, ReportedCpuTimes):
        journal.write(ROOM, KEY, replace(record, at=time.time()))


def remove(journal: Journal) -> None:
    """Remove the record, if there is one: this agent has reported more, or the record is too old."""
    if journal.read(ROOM, ReportedCpuTimes):
        journal.write(ROOM, KEY, None)


def read(journal: Journal) -> dict[str, float] | None:
    """Return the CPU time of each container that has been reported, in seconds; None: it is not known."""
    for record in journal.read(ROOM, ReportedCpuTimes):
        if time.time() - record.at < VALID_S:
            return record.cpu_s
        remove(journal)
    return None
