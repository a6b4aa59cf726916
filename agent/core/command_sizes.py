"""The sizes of ended commands of no job, such as those of ``penstock run``, by user and name.

The master learns them as it learns the sizes of its jobs.
"""

from __future__ import annotations

from collections import deque

from agent.core.records import ContainerRecord
from penstock.model.work import LONGEST_NAME
from penstock.program_name import name_of
from penstock.wire.cluster_api import CommandUse

#: The reports kept for an absent master; beyond this number, the first ones are dropped.
_MOST_UNREPORTED = 1024


class CommandSizes:
    """The commands that have ended, and that the master has not been told."""

    def __init__(self, *, has_master: bool) -> None:
        self.read = True  # whether the master reads reports; unknown until it answers our registration
        self._has_master = has_master
        self._unreported: deque[CommandUse] = deque(maxlen=_MOST_UNREPORTED)

    def ended(self, record: ContainerRecord) -> None:
        """Count an ended container, if it was a whole command of no job that ended well and was measured."""
        if self._has_master and (use := _use_of(record)) is not None:
            self._unreported.append(use)

    def report(self) -> list[CommandUse]:
        """Return the commands that have ended since the last report, and count them as told."""
        if not (self.read and self._unreported):
            return []
        told = list(self._unreported)
        self._unreported.clear()
        return told


def _use_of(record: ContainerRecord) -> CommandUse | None:
    """Return the use of an ended command, if that is the size of a whole one: as of jobs, only completed ones teach.

    What a job in the container has used counts for that job.
    """
    ended = record.ended
    if record.job or record.hosts_job or record.adopted or record.unrecorded or ended is None or not ended.ok:
        return None
    name = _name(record)
    return CommandUse(user=record.user, name=name, cpu_s=ended.cpu_seconds) if name and ended.cpu_seconds > 0 else None


def _name(record: ContainerRecord) -> str:
    """Return the name that its user gave a command, else that of its program."""
    return (record.spec.name or name_of(record.spec.argv))[:LONGEST_NAME]
