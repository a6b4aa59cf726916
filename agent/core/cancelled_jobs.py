"""The latest jobs that were cancelled at the master, kept for clients that have not read of it.

A client may lose its connection, when the agent dies, before it has read the cancellation. It then joins the job at the
next agent. If that one did not know the job, and the master was away, the client would register the job anew, and the
job's tasks would run again.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.instructions import Instruction, Notify, Record
from agent.core.records import CancelledJob, JobRecord
from agent.core.session import Session
from penstock.wire.agent_api import CancelledBy
from penstock.wire.errors import refused

ROOM = "cancelled"  # the journal's room
#: The number of cancelled jobs that are kept. There is no limit of age: nothing tells whether a client that is away, or
#: was stopped, will come back. A record takes some 100 bytes of the journal, and no later job gets the same id.
MOST = 1000


class CancelledJobs:
    """Cancelled jobs by id, in the order of their cancellation; the oldest are dropped first."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._jobs: dict[str, CancelledJob] = {}

    def __contains__(self, job: str) -> bool:
        return job in self._jobs

    def add(self, record: JobRecord, by: str) -> list[Instruction]:
        """Keep a job that the user ``by`` cancelled."""
        job = self._jobs[record.job] = CancelledJob(job=record.job, user=record.user, by=by)
        return [Record(ROOM, job.job, job), *self._drop_oldest()]

    def drop(self, job: str) -> list[Instruction]:
        """Drop a job of another origin that goes on: the cancellation was lost before that origin had received it."""
        return [] if self._jobs.pop(job, None) is None else [Record(ROOM, job, None)]

    def restore(self, jobs: Iterable[CancelledJob]) -> list[Instruction]:
        """Keep the jobs that an earlier agent kept, in the same order."""
        self._jobs.update((job.job, job) for job in jobs)
        return self._drop_oldest()

    def notification(self, session: Session, job: str) -> Notify:
        """Return the notification for a connection that joins a cancelled job.

        Raises:
            RpcError: ``refused``: it was another user's job.
        """
        known = self._jobs[job]
        if known.user != session.user and not session.operator:
            raise refused(f"job {job!r} belongs to {known.user}", field="job")
        return Notify(session.session, CancelledBy(job=job, by=known.by))

    def _drop_oldest(self) -> list[Instruction]:
        oldest = list(self._jobs)[: max(0, len(self._jobs) - self._most)]
        for job in oldest:
            del self._jobs[job]
        return [Record(ROOM, job, None) for job in oldest]
