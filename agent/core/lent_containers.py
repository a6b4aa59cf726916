"""Processes that clients lend for the rank of a job: they form containers of that job until it is over.

The processes were not started in a container, so these containers do not change how they behave: they do not end with a
connection, and their own children outlive them. When the job is over, its processes return to their former cgroups,
unless another job was named for them meanwhile, for example when a framework's workers agree on one job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.core import events as e
from agent.core.attained_service import AttainedService
from agent.core.containers import ROOM, Containers
from agent.core.instructions import AdoptProcess, GiveBack, Instruction, Record, Reply
from agent.core.job_cpu_times import JobCpuTimes
from agent.core.membership import Membership
from agent.core.ranks import Ranks
from agent.core.records import ContainerRecord, ContainerState
from agent.core.session import Session
from penstock.model import Ended, EndedBy


@dataclass(eq=False, slots=True)
class LentContainers:
    """The containers of lent processes. A connection's :class:`~agent.core.session.Session` has those it has lent."""

    _members: Membership
    _containers: Containers
    _ranks: Ranks
    _cpu_times: JobCpuTimes
    _attained: AttainedService
    _ids: Iterator[str]

    # ------------------------------------------------------------ lending

    def holder(self, event: e.LendRequested) -> ContainerRecord | None:
        """Return the container that holds the process, or that is about to."""
        if (record := self._containers.live.get(event.inside)) is not None:
            return record
        live = self._containers.live.values()
        return next((one for one in live if one.adopts == event.pid and one.state is ContainerState.STARTING), None)

    def claim(self, event: e.LendRequested, record: ContainerRecord) -> list[Instruction]:
        """Record the job that also wants the container, which takes it over when the present job ends.

        If that is over already the container changes jobs at once, and the jobs have to be ranked anew.
        """
        if not record.borrowed:
            return []
        self._members.sessions[event.session].lend(record.container, event.job)
        if record.job in self._members.jobs:
            return []
        record.lend(event.job)
        return [Record(ROOM, record.container, record)]

    def lend(self, event: e.LendRequested, record: ContainerRecord) -> list[Instruction]:
        """Take in a process and its descendants for a job, in the container of an admitted record."""
        session = self._members.sessions[event.session]
        session.detach(record.container)  # only its parent sees how it exits
        session.lend(record.container, event.job)
        record.adopt(event.pid, event.nice)
        if event.own:
            session.run_in(record.container)
        return [Reply(record.container), *self._take_in(record, event.job)]

    # ------------------------------------------------------------ giving back

    def job_over(self, job: str, merged_into: str = "") -> list[Instruction]:
        """Move the processes of an ended job to the job that continues its work, or give them back."""
        instructions: list[Instruction] = []
        for record in self._containers.live.values():
            if not record.borrowed or record.job != job:
                continue
            lent = (session.lent.get(record.container, "") for session in self._members.sessions.values())
            record.lend(next((each for each in (merged_into, *lent) if each in self._members.jobs), job))
            instructions.append(Record(ROOM, record.container, record))
            if record.job == job:
                instructions += self.give_back(record)
        return instructions

    def give_back(self, record: ContainerRecord) -> list[Instruction]:
        """Give a running container back if its job is over."""
        return [] if record.job in self._members.jobs else self._give_back(record)

    def agent_stops(self, session: Session) -> list[Instruction]:
        """Give back the containers that a connection has lent; it lends them anew to the next agent."""
        lent = [record for name in session.lent if (record := self._containers.live.get(name)) is not None]
        return [one for record in lent for one in self._give_back(record)]

    def stays(self, event: e.GivenBack, record: ContainerRecord) -> list[Instruction]:
        """Treat a container that could not be given back as an adopted one."""
        left = record.job
        record.keep()
        self._cpu_times.end(record, event.cpu_seconds, goes_on=True)
        self._attained.container_gone(left)
        return [Record(ROOM, record.container, record), record.confine()]

    def how_it_ended(self, event: e.GivenBack, record: ContainerRecord) -> Ended:
        """Return the end of a container that was given back."""
        over = "the agent stopped" if record.job in self._members.jobs else "its job is over"
        return Ended(
            by=EndedBy.EXIT,
            reason=f"{over}: its processes go on",
            cpu_seconds=event.cpu_seconds,
            memory_peak_bytes=event.memory_peak_bytes,
            wall_seconds=max(0.0, event.at - record.started_at),
        )

    def wanted(self, container: str) -> dict[int, str]:
        """Return the connections that have lent a container for a job that is not over → that job."""
        jobs = self._members.jobs
        lent = {each.session: each.lent.get(container, "") for each in self._members.sessions.values()}
        return {session: job for session, job in lent.items() if job in jobs}

    def lend_anew(self, record: ContainerRecord, wanted: dict[int, str]) -> list[Instruction]:
        """Take in the processes of an ended container again: they were lent for other jobs while it was given back."""
        anew = ContainerRecord(
            container=f"c-{next(self._ids)}", user=record.user, spec=record.spec, opportunistic=False
        )
        anew.adopt(record.adopts, record.nice_before)
        for session, job in wanted.items():
            self._members.sessions[session].lend(anew.container, job)
        return self._take_in(anew, next(iter(wanted.values())))

    def _take_in(self, record: ContainerRecord, job: str) -> list[Instruction]:
        record.lend(job)
        self._ranks.begin(record)
        adopt = AdoptProcess(
            record.container, record.user, record.spec, record.adopts, True, record.rank_weight, record.groups,
            borrow=True,
        )  # fmt: skip
        return self._containers.add(record, adopt)

    def _give_back(self, record: ContainerRecord) -> list[Instruction]:
        if not record.borrowed or record.state is not ContainerState.RUNNING:
            return []
        return [GiveBack(record.container, record.pid, record.nice_before, self._ranks.apart(record))]
