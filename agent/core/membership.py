"""The jobs on this node, the connections to its agent, and which connection has joined which job."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.records import Job, JobRecord
from agent.core.session import Session
from penstock.wire.errors import bad_request, refused
from penstock.wire.master_api import SetPriority


class Membership:
    """The jobs by id, the sessions by number, and the tenants of the jobs' users."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.sessions: dict[int, Session] = {}
        self._places = 0
        self._of_user: dict[str, dict[str, JobRecord]] = {}  # user → its jobs, in the order of their arrival
        self._tenants: dict[str, tuple[str, float]] = {}
        #: User → its tenant and that one's weight, as the master named them, also to an earlier agent; empty: tenants
        #: have no shares.
        self.tenants: Mapping[str, tuple[str, float]] = self._tenants
        self._configured: Mapping[str, tuple[str, float]] = {}
        self.all_tenants_known = False  # a user that is not in ``tenants`` is a tenant of its own

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
        self._of_user.setdefault(record.user, {})[record.job] = record
        self._find_tenant(record)
        return job

    def set_priority(self, record: JobRecord, by: SetPriority) -> bool:
        """Record a job's place in the order; return whether something changed that the next agent is to know."""
        changed = record.set_priority(by)
        self._find_tenant(record)
        return changed

    def name_tenants(self, configured: Mapping[str, tuple[str, float]] | None) -> None:
        """Record the tenants in the master's configuration; None: they have no shares, or are unknown."""
        self.all_tenants_known = configured is not None
        before, self._configured = self._configured, configured or {}
        for user in before.keys() | self._configured.keys():
            self._name_tenant(user)

    def join(self, session: Session, job: Job) -> None:
        """Record that a connection takes part in a job."""
        job.join(session.session)
        session.jobs.add(job.record.job)

    def remove(self, job: Job) -> None:
        """Remove a job that is over."""
        job.end()
        record = job.record
        of_user = self._of_user[record.user]
        del self.jobs[record.job], of_user[record.job]
        if not of_user:
            del self._of_user[record.user]
        self._find_tenant(record)
        for session in job.sessions:
            self.sessions[session].jobs.discard(record.job)

    def _find_tenant(self, changed: JobRecord) -> None:
        if changed.tenant or changed.user in self._tenants:
            self._name_tenant(changed.user)

    def _name_tenant(self, user: str) -> None:
        """Take a user's tenant from its latest job for which the master has named one, else as it is configured."""
        self._tenants.pop(user, None)
        if user in self._configured:
            self._tenants[user] = self._configured[user]
        for record in reversed(self._of_user.get(user, {}).values()):
            if record.tenant:
                self._tenants[user] = record.tenant, record.tenant_weight
                return
