"""Finished jobs and their outcomes: the latest jobs of each user."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import msgspec

from master.changes import Changes
from master.core.job import Job, Task
from master.core.work import Work
from penstock.model import Ended, EndedBy
from penstock.model.units import counted
from penstock.wire.jobs_api import MOST_FAILURES, JobView, TaskFailure

#: Bounds on the finished jobs of one user, and on all finished jobs.
MOST_OF_A_USER = 100
MOST = 2000
#: The reason for the outcome of a job that its origin no longer has, until the origin reports how it ended.
UNREPORTED = "its job ended while its origin was away"


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A finished job: its view, and the user who cancelled it, if it was cancelled. ``reported``: its origin has
    reported how it ended, or is not expected to. ``expected_reports_s``: if it ended without a report of its origin,
    the nodes that may report more of its service, each with the service in its latest report; None: an older master
    stored the job, without these nodes.
    """

    view: JobView
    cancelled_by: str = ""
    reported: bool = True
    expected_reports_s: dict[str, float] | None = None

    @property
    def lost(self) -> bool:
        """Return whether it ended with its origin, which may come back."""
        return self.view.outcome == "lost"

    @property
    def outcome_known(self) -> bool:
        """Return whether no report of its origin changes the outcome."""
        return bool(self.cancelled_by) or (self.reported and not self.lost)

    def work(self) -> Work:
        """Return a record of its work that contains its service, for later reports."""
        return Work.resumed(self.view.job, self.view.service_container_s, self.expected_reports_s or {})

    def with_service_of(self, work: Work) -> FinishedJob:
        """Return the job with the service in a record of its work."""
        view = msgspec.structs.replace(self.view, service_container_s=work.service_s)
        expected_s = self.expected_reports_s and {
            node: work.seen[node].service_s if node in work.seen else reported_s
            for node, reported_s in self.expected_reports_s.items()
            if node not in work.told_last
        }
        return replace(self, view=view, expected_reports_s=expected_s)


class FinishedJobs:
    """A bounded store. The job that ended first is removed first: of a user with too many jobs, and if there are too
    many in all, of the users with the most, so that the short jobs of one user do not remove those of others.
    """

    def __init__(self, most_of_a_user: int = MOST_OF_A_USER, most: int = MOST) -> None:
        self._most_of_a_user = most_of_a_user
        self._most = most
        self._jobs: dict[str, FinishedJob] = {}
        self._of_user: dict[str, list[str]] = {}  # by their ends
        #: By user: the number of jobs, negated, and the first one's end. The first is removed, of the first user.
        self._users: list[tuple[int, float, str]] = []
        self.unstored = Changes[str, FinishedJob]()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[FinishedJob]:
        """Iterate in the order in which the ends were stored."""
        return iter(self._jobs.values())

    def get(self, job: str) -> FinishedJob | None:
        """Return a job by its id; None where it is not stored."""
        return self._jobs.get(job)

    def add(self, past: FinishedJob) -> None:
        """Store a finished job."""
        job, user = past.view.job, past.view.user
        self.drop(job)
        self.unstored.pop(job, None)
        removed = self._removed_for(user, past.view.ended_at or 0.0)
        self._jobs[job] = self.unstored[job] = past
        own = self._of_user.setdefault(user, [])
        self._unplace(user, own)
        insort(own, job, key=self._ended_at)
        self._place(user, own)
        if removed is not None:
            self.drop(removed or job)

    def update(self, past: FinishedJob) -> None:
        """Replace a job until the master ends, or the job is added again: its stored record stays, as do its user and
        its end.
        """
        self._jobs[past.view.job] = past

    def has_room(self, user: str, ended_at: float) -> bool:
        """Return whether a job of this user that ended then would be stored: not if it were the first to be removed."""
        return self._removed_for(user, ended_at) != ""

    def _removed_for(self, user: str, ended_at: float) -> str | None:
        """Return the job that is removed for one of this user that ended then; "": the new one; None: there is room."""
        own = self._of_user.get(user, [])
        first_own = own[0] if own and self._ended_at(own[0]) <= ended_at else ""
        if len(own) >= self._most_of_a_user:
            return first_own
        if len(self._jobs) < self._most:
            return None
        placed = (-len(own) - 1, self._ended_at(first_own) if first_own else ended_at)
        other = next((each for each in self._users[:2] if each[2] != user), None)
        return first_own if other is None or placed < other[:2] else self._of_user[other[2]][0]

    def _ended_at(self, job: str) -> float:
        return self._jobs[job].view.ended_at or 0.0

    def drop(self, job: str) -> None:
        """Remove a job: it was the oldest, or its origin reports that it still exists."""
        past = self._jobs.get(job)
        if past is None:
            return
        own = self._of_user[past.view.user]
        self._unplace(past.view.user, own)
        own.remove(job)
        self._place(past.view.user, own)
        del self._jobs[job]
        self.unstored[job] = None

    def _unplace(self, user: str, own: list[str]) -> None:
        """Remove a user, before a change of its jobs."""
        if own:
            del self._users[bisect_left(self._users, (-len(own), self._ended_at(own[0]), user))]

    def _place(self, user: str, own: list[str]) -> None:
        """Add a user anew, after a change of its jobs."""
        if own:
            insort(self._users, (-len(own), self._ended_at(own[0]), user))
        else:
            del self._of_user[user]

    def restore(self, jobs: Iterable[FinishedJob]) -> None:
        """Restore the jobs stored by the previous master; report removals of those that exceed the bounds here."""
        for past in jobs:
            self.add(past)
        self.unstored.update({job: None for job, past in self.unstored.take().items() if past is None})


def note_end(job: Job, task: Task, ended: Ended) -> None:
    """Count a task's end in its job's failures and cancellations."""
    if ended.ok:
        return
    if ended.by is EndedBy.CANCELLED:
        job.cancelled_tasks += 1
        return
    job.failed_tasks += 1
    if len(job.failures) < MOST_FAILURES:
        job.failures.append(TaskFailure.of(task.name, task.stage, task.node or task.was_on, ended))


def outcome(job: Job, why: str, *, lost: bool, reported: bool) -> tuple[str, str]:
    """Return how a finished job ended, as a word and as a line. ``why``: the reason where the framework did not end it;
    ``lost``: the job ended with its host; ``reported``: its origin has reported the end, without which the job is not
    known to be complete.
    """
    if job.cancelled_by:
        return "cancelled", f"cancelled by {job.cancelled_by}"
    if lost:
        return "lost", why
    if not reported:
        return "disconnected", why
    if job.failures:
        first = job.failures[0]
        return "failed", f"{counted(job.failed_tasks, 'task')} failed; first {first.task}: {first.how}"
    if job.work.failed:
        return "failed", job.work.failed
    if job.tasks or not job.work.complete:
        return ("disconnected", why) if why else ("cancelled", "its framework ended it before it was done")
    if job.cancelled_tasks:
        return "cancelled", f"its framework cancelled {job.cancelled_tasks} of its tasks"
    return "succeeded", ""
