"""The record of the service that jobs had received when an agent stopped: the next agent counts on from it.

So its first report contains all that the agents before have counted: the master adds what it has not received,
whether a report was lost or its master was away, and nothing twice. A final report of a job that has ended is sent
once; it is lost with its connection.

An agent removes the record before it reports to a master: one that ends without another record is followed by a count
from 0, which the master adds as a whole.
"""

from __future__ import annotations

import time

from msgspec.structs import replace

from agent.core.attained_service import KEY, ROOM, LastCount
from agent.journal import Journal


def write(journal: Journal, count: LastCount) -> None:
    """Record the counts of the node, with their date."""
    journal.write(ROOM, KEY, replace(count, at=time.time()))


def take_over(journal: Journal, before_at: float | None) -> None:
    """Date the record anew at the start of an agent. Remove one that is older than the start of the agent before: that
    was of an earlier version, which does not know the record, and may have reported more.

    ``before_at``: when the agent before started (Unix); None: it is not known.
    """
    if (record := read(journal)) is not None:
        if before_at is not None and before_at > record.at:
            remove(journal)
        else:
            write(journal, record)


def remove(journal: Journal) -> None:
    """Remove the record, if there is one: this agent reports more."""
    if read(journal) is not None:
        journal.write(ROOM, KEY, None)


def read(journal: Journal) -> LastCount | None:
    """Return the record; None: the agent before did not stop, or a report has followed."""
    return next(iter(journal.read(ROOM, LastCount)), None)
