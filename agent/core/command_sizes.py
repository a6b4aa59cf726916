"""The sizes of ended commands of no job, such as those of ``penstock run``, by user and name.

The master learns them as it learns the sizes of its jobs. The node, which places such commands in the order itself,
expects the next one of the same user and name to be like the last ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from agent.core.records import ContainerRecord
from penstock.model.work import LONGEST_NAME
from penstock.program_name import name_of
from penstock.wire.cluster_api import CommandUse

#: The known runs of each command, the latest ones.
_RUNS = 16
#: A run is like a known one until it has used so much more: runs of one size vary.
_VARIES = 1.1
#: A name tells the size of the next run if its largest known run is at most so many times the smallest.
_MOST_APART = 4.0
#: The known commands; beyond this number, the user with the most of them loses the one that ended first.
_MOST_KNOWN = 1024
#: The reports kept for an absent master; beyond this number, the first ones are dropped.
_MOST_UNREPORTED = 1024


@dataclass(frozen=True, slots=True)
class Expected:
    """The CPU seconds that a command is expected to need yet, from its ``runs`` known runs that needed more."""

    left_s: float
    runs: int


class CommandSizes:
    """The CPU time of the last runs of each command, and the runs that the master has not been told."""

    def __init__(self, *, has_master: bool) -> None:
        self.read = True  # whether the master reads reports; unknown until it answers our registration
        self._has_master = has_master
        self._known_s: dict[str, dict[str, tuple[float, ...]]] = {}  # user → name → CPU seconds
        self._known = 0  # the number of names
        self._names: dict[str, str] = {}  # live container whose command was looked for → the command's name
        self._unreported: deque[CommandUse] = deque(maxlen=_MOST_UNREPORTED)

    def ended(self, record: ContainerRecord) -> None:
        """Count an ended container, if it was a whole command of no job that ended well and was measured."""
        if (use := _use_of(record, self._names.pop(record.container, None))) is not None:
            self._learn(use)
            if self._has_master:
                self._unreported.append(use)

    def recovered(self, records: Iterable[ContainerRecord]) -> None:
        """Learn from the ended containers that an earlier agent kept; the master has been told of them."""
        for use in map(_use_of, sorted(records, key=lambda each: each.order)):
            if use is not None:
                self._learn(use)

    def report(self) -> list[CommandUse]:
        """Return the commands that have ended since the last report, and count them as told.

        Heartbeats are not acknowledged: a link that is lost meanwhile loses these commands for the master.
        """
        if not (self.read and self._unreported):
            return []
        told = list(self._unreported)
        self._unreported.clear()
        return told

    def expected(self, record: ContainerRecord, used_s: float) -> Expected | None:
        """Return what a command of no job that has used ``used_s`` CPU seconds is expected to need yet.

        That is the inverse of its Gittins index if its size is like one of its known runs (docs/order.md). None: none
        is known, they differ too much, or it has outlasted them all.
        """
        if not self._known_s:
            return None
        name = self._names.get(record.container)
        if name is None:
            name = self._names[record.container] = _name(record)
        known_s = self._known_s.get(record.user, {}).get(name)
        if known_s is None or max(known_s) > _MOST_APART * min(known_s):
            return None
        if not (larger_s := [size_s for size_s in known_s if size_s > used_s]):
            return None
        larger_s.sort()
        best_s, ended_s, running = math.inf, 0.0, len(larger_s)
        for size_s in larger_s:  # if the command is served until it ends, or has used as much
            running -= 1
            ended_s += size_s - used_s
            per_end_s = (ended_s + running * (size_s - used_s)) / (len(larger_s) - running)
            if per_end_s < best_s:
                best_s = per_end_s
        return Expected(best_s, len(larger_s))

    def _learn(self, use: CommandUse) -> None:
        of_user = self._known_s.setdefault(use.user, {})
        self._known += use.name not in of_user
        known_s = of_user.pop(use.name, ())
        of_user[use.name] = (*known_s[1 - _RUNS :], use.cpu_s * _VARIES)
        if self._known > _MOST_KNOWN:
            user = max(self._known_s, key=lambda each: len(self._known_s[each]))
            most = self._known_s[user]
            del most[next(iter(most))]
            self._known -= 1
            if not most:
                del self._known_s[user]


def _use_of(record: ContainerRecord, name: str | None = None) -> CommandUse | None:
    """Return the use of an ended command, if that is the size of a whole one: as of jobs, only completed ones teach.

    What a job in the container has used counts for that job. ``name``: the command's name, if that has been made.
    """
    ended = record.ended
    if record.job or record.hosts_job or record.adopted or record.unrecorded or ended is None or not ended.ok:
        return None
    name = _name(record) if name is None else name
    return CommandUse(user=record.user, name=name, cpu_s=ended.cpu_seconds) if name and ended.cpu_seconds > 0 else None


def _name(record: ContainerRecord) -> str:
    """Return the name that its user gave a command, else that of its program."""
    return (record.spec.name or name_of(record.spec.argv))[:LONGEST_NAME]
