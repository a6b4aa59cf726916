"""Jobs that are over, and how they ended: the latest of each user, for whoever asks later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from master.ordering import JobSizes, KnownSizes
from penstock.model import Ended, EndedBy
from penstock.model.units import counted
from penstock.wire.jobs_api import JobView, TaskFailure

if TYPE_CHECKING:
    from master.core.records import Job, Task

#: So many of one user are remembered, so many in all, and so many failed tasks of a job.
MOST_OF_A_USER = 100
MOST = 2000
MOST_FAILURES = 20


@dataclass(frozen=True, slots=True)
class Past:
    """A job that is over: what is said of it, and who cancelled it, if anybody did."""

    view: JobView
    cancelled_by: str = ""


class PastJobs:
    """Bounded: of each user, and in all, those that ended first are forgotten first."""

    def __init__(self, most_of_a_user: int = MOST_OF_A_USER, most: int = MOST) -> None:
        self._most_of_a_user = most_of_a_user
        self._most = most
        self._jobs: dict[str, Past] = {}
        self._of_user: dict[str, dict[str, None]] = {}
        self._changed: dict[str, Past | None] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Past]:
        """In the order in which they ended."""
        return iter(self._jobs.values())

    def get(self, job: str) -> Past | None:
        """A job by its id, if it is still remembered."""
        return self._jobs.get(job)

    def remember(self, past: Past) -> None:
        """It is over."""
        job, user = past.view.job, past.view.user
        self.forget(job)
        self._changed.pop(job, None)
        self._jobs[job] = self._changed[job] = past
        own = self._of_user.setdefault(user, {})
        own[job] = None
        if len(own) > self._most_of_a_user:
            self.forget(next(iter(own)))
        elif len(self._jobs) > self._most:
            self.forget(next(iter(self._jobs)))

    def forget(self, job: str) -> None:
        """It was the oldest; or its origin says that it is there after all."""
        past = self._jobs.pop(job, None)
        if past is not None:
            self._changed[job] = None
            own = self._of_user[past.view.user]
            del own[job]
            if not own:
                del self._of_user[past.view.user]

    def take_changes(self) -> dict[str, Past | None]:
        """What is to be written down since the last call, in the order in which it happened; None: forgotten."""
        changed, self._changed = self._changed, {}
        return changed

    def restore(self, jobs: Iterable[Past]) -> None:
        """What the master before this one wrote down; of what no longer has room here is told that it is forgotten."""
        for past in jobs:
            self.remember(past)
        self._changed = {job: past for job, past in self._changed.items() if past is None}


def remember_sizes(sizes: JobSizes, kept: Iterable[KnownSizes], jobs: Iterable[Past]) -> None:
    """What the master before this one had learnt of sizes; where it kept nothing, what the ends of its jobs tell."""
    kept = list(kept)
    sizes.restore(kept)
    for past in jobs if not kept else ():
        if past.view.outcome in {"succeeded", "failed"}:
            sizes.learn(past.view.user, past.view.name, past.view.service_container_s)


def note_end(job: Job, task: Task, ended: Ended) -> None:
    """A task of a job is over."""
    if ended.ok:
        return
    if ended.by is EndedBy.CANCELLED:
        job.cancelled_tasks += 1
        return
    job.failed_tasks += 1
    if len(job.failures) < MOST_FAILURES:
        failure = TaskFailure(
            task=task.name,
            stage=task.stage,
            node=task.node or task.was_on,
            by=ended.by.value,
            exit_status=ended.exit_status,
            reason=ended.reason[:1000],
        )
        job.failures.append(failure)


def outcome(job: Job, why: str, *, lost: bool) -> tuple[str, str]:
    """How a job that is over ended, in a word and in a line. ``why`` says it of one whose framework did not end it;
    ``lost``: it ended with its host."""
    if job.cancelled_by:
        return "cancelled", f"cancelled by {job.cancelled_by}"
    if lost:
        return "lost", why
    if job.failures:
        first = job.failures[0]
        how = first.reason or f"{first.by}, exit status {first.exit_status}"
        return "failed", f"{counted(job.failed_tasks, 'task')} failed; first {first.task}: {how}"
    if job.tasks or not job.work.complete:
        return ("disconnected", why) if why else ("cancelled", "its framework ended it before it was done")
    if job.cancelled_tasks:
        return "cancelled", f"its framework cancelled {job.cancelled_tasks} of its tasks"
    return "succeeded", ""
