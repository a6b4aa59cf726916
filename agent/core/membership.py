"""The jobs on this node, the connections to its agent, and which connection has joined which job."""

from __future__ import annotations

from agent.core.records import Job, JobRecord
from agent.core.session import Session
from penstock.wire.errors import bad_request, refused


class Membership:
    """The jobs by id and the sessions by number."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.sessions: dict[int, Session] = {}
        self._places = 0

    def job_of(self, session: int, job: str, *, member: bool = True) -> Job:
        """Return a job that this session may access; ``member``: it must have registered or joined it.

        Raises:
            RpcError: ``bad_request``: no such job; ``refused``: another user's job.
        """
        known = self.jobs.get(job)
        if known is None:
            raise bad_request(f"unknown job {job[:128]!r}", field="job", remedy="register_job first")
        if session in known.sessions:
            return known
        opened = self.sessions[session]
        if known.record.user != opened.user and not opened.operator:
            raise refused(f"job {job!r} belongs to {known.record.user}", field="job")
        if member:
            raise bad_request(f"this connection has not joined {job!r}", field="job", remedy="register_job with `job`")
        return known

    def add(self, record: JobRecord) -> Job:
        """Add a job, as the latest unless its record has a place."""
        self._places = record.place = record.place or self._places + 1
        job = self.jobs[record.job] = Job(record)
        return job

    def join(self, session: Session, job: Job) -> None:
        """Record that a connection takes part in a job."""
        job.join(session.session)
        session.jobs.add(job.record.job)

    def remove(self, job: Job) -> None:
        """Remove a job that is over."""
        job.end()
        del self.jobs[job.record.job]
        for session in job.sessions:
            self.sessions[session].jobs.discard(job.record.job)
