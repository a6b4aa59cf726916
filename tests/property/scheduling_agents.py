"""Agents as the contract between them and the master describes them, and the demands of their jobs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from master.core import events as e
from master.core.instructions import SendDecisions
from penstock.model import Capacity, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.wire import master_api as api
from penstock.wire.cluster_api import Draining, Remaining
from penstock.wire.job_end_api import JobAtEnd

MIB = 1024**2
NODES = ("a", "b", "c")
TIMEOUT_S = 5.0
EXIT = Ended(by=EndedBy.EXIT, exit_status=0)


@dataclass
class Wanted:
    """A task at its origin."""

    stage: str
    request: TaskRequest
    opportunistic: bool
    node: str = ""
    ended: Ended | None = None
    unwanted: bool = False  # its framework cancelled it

    @property
    def journaled(self) -> bool:
        """Whether its framework executes it, and so does not ask the next agent for it."""
        return bool(self.node) and self.ended is None and not self.unwanted and self.request.command is None


@dataclass
class Job:
    state: api.JobState
    tasks: dict[str, Wanted] = field(default_factory=dict)
    forgotten: dict[str, Wanted] = field(default_factory=dict)  # its agent restarted; its framework still knows
    recovered: bool = False


@dataclass
class Agent:
    """An agent as the contract describes it. ``to_master`` holds messages and answers in the order of the stream."""

    name: str
    capacity: Capacity
    linked: bool = False
    jobs: dict[str, Job] = field(default_factory=dict)
    held: dict[tuple[str, str], api.Assign] = field(default_factory=dict)
    stopping: dict[tuple[str, str], api.Assign] = field(default_factory=dict)  # commands that are being killed
    again: set[tuple[str, str]] = field(default_factory=set)  # those of them that are to run again
    external: int = 0
    external_version: int = 0
    reported: int = 0  # `external` when the heartbeat was made that the master knows
    decided: int = 0
    kept: list[e.Message] = field(default_factory=list)
    jobs_ended: list[api.JobEnded] = field(default_factory=list)  # reported on this connection
    ended_here: dict[tuple[str, str], api.Assign] = field(default_factory=dict)  # commands that have ended here
    to_master: deque[tuple[str, object, int, int]] = field(default_factory=deque)
    inbox: deque[tuple[SendDecisions, int]] = field(default_factory=deque)
    refusals: list[str] = field(default_factory=list)
    draining: Draining | None = None  # in its journal

    def promised(self) -> int:
        regular = [*self.held.values(), *self.stopping.values()]
        return self.external + sum(held.request.memory_bytes for held in regular if not held.opportunistic)

    def load(self) -> api.Load:
        everything = [*self.held.values(), *self.stopping.values()]
        pending = KindAmounts()
        for held in everything:
            pending = pending + held.request.usage
        used = self.external + sum(held.request.memory_bytes for held in everything)
        return api.Load(
            rates=KindAmounts(), pending=pending, idle=KindAmounts(max(0.0, 4.0 - len(everything)), 1, 2),
            used_memory_bytes=used, promised_memory_bytes=self.promised(),
        )  # fmt: skip

    def say(self, message: e.Message) -> None:
        if self.linked:
            if isinstance(message, api.JobEnded):
                self.jobs_ended.append(message)
            self.to_master.append(("message", message, self.external_version, self.external))
        elif isinstance(message, (api.JobEnded, api.TasksDone, api.TasksCancelled, api.CommandEnded)):
            self.kept.append(message)

    def register(self) -> api.Register:
        ready, awaited = [], []
        for name, job in self.jobs.items():
            for wanted in job.tasks.values():
                if wanted.ended is None and not wanted.node:
                    ready.append(
                        api.ReadyTasks(
                            job=name, stage=wanted.stage, tasks=[wanted.request], opportunistic=wanted.opportunistic
                        )
                    )
                elif wanted.ended is None:
                    awaited.append(
                        api.AwaitedTask(
                            job=name, stage=wanted.stage, request=wanted.request, node=wanted.node,
                            opportunistic=wanted.opportunistic,
                        )
                    )  # fmt: skip
        placed = [
            api.PlacedTask(
                job=held.job, stage=held.stage, task=held.request.task, origin=held.origin,
                remaining=held.request.usage, memory_bytes=held.request.memory_bytes,
                opportunistic=held.opportunistic, command=held.request.command is not None, user=held.user,
            )
            for held in [*self.held.values(), *self.stopping.values(), *self.unreported()]
        ]  # fmt: skip
        self.decided = 0
        ended = sum(held.request.memory_bytes for held in self.unreported() if not held.opportunistic)
        spoken_for = {said.job for said in self.kept if isinstance(said, api.TasksDone)} - self.jobs.keys()
        served = [api.JobUse(job=job, service_s=0.0) for job in sorted(spoken_for)]
        return api.Register(
            protocol=1, node=self.name, version="0", capacity=self.capacity, t_alloc=0.9,
            load=msgspec.structs.replace(self.load(), jobs=served, promised_memory_bytes=self.promised() + ended),
            jobs=[job.state for job in self.jobs.values()], ready=ready, placed=placed,
            awaited=awaited, complete=not any(job.recovered for job in self.jobs.values()), draining=self.draining,
        )  # fmt: skip

    def cancelled(self) -> list[api.TasksCancelled]:
        """Return the cancelled tasks that have not ended as far as this origin knows; they follow the registration."""
        return [
            api.TasksCancelled(job=name, tasks=[task])
            for name, job in self.jobs.items()
            for task, wanted in job.tasks.items()
            if wanted.unwanted and wanted.node and wanted.ended is None
        ]

    def unreported(self) -> list[api.Assign]:
        """Return the ends that are still to be reported."""
        keys = dict.fromkeys((said.job, said.task) for said in self.kept if isinstance(said, api.CommandEnded))
        return [self.ended_here[key] for key in keys if key not in self.held and key not in self.stopping]

    def decide(self, sent: SendDecisions, known_version: int, grumpy: bool) -> None:
        refused: list[api.Refusal] = []
        for index, decision in enumerate(sent.decisions):
            reason = self.carry_out(decision, known_version, grumpy)
            if reason:
                refused.append(api.Refusal(index=index, reason=reason))
        self.decided = sent.number
        self.to_master.append(("answer", e.Answered(self.name, sent.number, refused, self.tells_places), 0, 0))

    def heartbeat(self) -> api.Heartbeat:
        others = self.draining is not None and self.external > 0
        own = [Remaining("container", "c", "others'", "u")] if others else []
        return api.Heartbeat(load=self.load(), decided=self.decided, own=own)

    def drain(self, draining: Draining | None) -> None:
        """Give back all that may be stopped at any time; report this before the decision is answered."""
        self.draining = draining
        for key, held in list(self.held.items()):
            if draining is not None and held.opportunistic and held.request.command is not None:
                self.command_over(key, Ended(by=EndedBy.PREEMPTED))

    def carry_out(self, decision: api.AnyDecision, known_version: int, grumpy: bool) -> str:  # noqa: C901 - one case each
        if isinstance(decision, api.Drain):
            self.drain(decision.draining)
            return ""
        job = self.jobs.get(decision.job)
        match decision:
            case api.Assign():
                return self.assign(decision, known_version, grumpy)
            case api.Withdraw():
                held = self.held.pop((decision.job, decision.task), None)
                if held is None:
                    return "" if (decision.job, decision.task) in self.stopping else "it is not here"
                if held.request.command is not None:
                    self.stopping[decision.job, decision.task] = held
                    if decision.again:
                        self.again.add((decision.job, decision.task))
            case api.Promote():
                held = self.held.get((decision.job, decision.task))
                if held is None:
                    return "it is not here"
                if held.opportunistic:
                    if grumpy or self.promised() + held.request.memory_bytes > self.capacity.memory_bytes:
                        return "no room"
                    self.held[decision.job, decision.task] = msgspec.structs.replace(held, opportunistic=False)
            case api.CancelJob():
                return self.cancel(decision.job, decision.by)
            case api.AdmitJob() if job is not None:
                job.state = msgspec.structs.replace(job.state, admitted=True)
            case api.SetPriority() if job is not None:
                job.state = msgspec.structs.replace(job.state, priority=decision.priority)
            case api.TellPlaced() if job is not None:
                self.placed(job, decision.task, decision.node)
            case api.TellEnded() if job is not None:
                wanted = job.tasks.get(decision.task)
                if wanted is not None and wanted.ended is None:
                    done = decision.ended.by is EndedBy.EXIT
                    assert decision.ended.by is not EndedBy.PREEMPTED, "preempted work is done again"
                    stopped = decision.ended.by is EndedBy.CANCELLED
                    with_its_job = decision.ended.reason.startswith("cancelled by ")
                    assert wanted.unwanted or with_its_job or not stopped, "it was not cancelled"
                    assert wanted.node or job.recovered or not done, "it ended without having been placed"
                    wanted.ended = decision.ended
            case api.TellWaiting() if job is not None:
                assert not job.state.admitted
            case _:
                return "unknown job"
        return ""

    @staticmethod
    def placed(job: Job, task: str, node: str) -> None:
        """Note where a task is, as its origin."""
        wanted = job.tasks.get(task)
        if wanted is not None and wanted.ended is None:
            moved = wanted.node not in ("", node)
            assert wanted.request.command is not None or not moved, "a framework's task was moved"
            wanted.node = node

    def assign(self, decision: api.Assign, known_version: int, grumpy: bool) -> str:
        key = (decision.job, decision.request.task)
        assert key not in self.held and key not in self.stopping, f"{key} is placed on {self.name} twice"
        assert self.draining is None, f"{key} is placed on {self.name}, which is drained"
        if grumpy:
            return "I will not"
        room = self.capacity.memory_bytes - self.promised()
        if not decision.opportunistic and decision.request.memory_bytes > room:
            assert known_version < self.external_version, f"{key} over-commits {self.name}: {room} bytes are free"
            return "no memory"
        if decision.origin == self.name and decision.job not in self.jobs:
            return "its job has ended"
        self.held[key] = decision
        job = self.jobs.get(decision.job)
        if self.tells_places and job is not None:
            self.placed(job, decision.request.task, self.name)
        return ""

    @property
    def tells_places(self) -> bool:
        """Whether it tells its own jobs itself where their tasks are, as agents do since 30 November 2026."""
        return self.name != "a"

    def end_job(self, job: str, cancelled_by: str = "") -> None:
        over = self.jobs.pop(job)
        ends = [wanted.ended for wanted in over.tasks.values() if wanted.ended is not None]
        cancelled = sum(ended.by is EndedBy.CANCELLED for ended in ends)
        at_end = JobAtEnd(
            name=over.state.name, user=over.state.user, submitted_at=over.state.submitted_at, ended_at=1000.0,
            undone=len(ends) < len(over.tasks), tasks_ended=len(ends), tasks_cancelled=cancelled,
            cancelled_by=cancelled_by,
        )  # fmt: skip
        self.say(api.JobEnded(job=job, at_end=at_end))
        for key, held in list(self.held.items()):
            if key[0] == job:
                del self.held[key]
                if held.request.command is not None:
                    self.stopping[key] = held

    def cancel(self, job: str, by: str) -> str:
        """End all parts of a job that are on this node, wherever it was registered."""
        if job in self.jobs:
            self.end_job(job, by)
            return ""
        here = [key for key in self.held if key[0] == job]
        for key in here:
            if (held := self.held.pop(key)).request.command is not None:
                self.stopping[key] = held
        return "" if here else "unknown job"

    def unlink(self, *, answers_lost: bool = False) -> None:
        """Cut the connection.

        Of the messages under way only the ends of commands and jobs are sent again: they have no answer yet.
        ``answers_lost``: nor have the jobs' ends that the master has read.
        """
        self.linked = False
        unanswered = [what for _, what, _, _ in self.to_master if isinstance(what, (api.CommandEnded, api.JobEnded))]
        read = [ended for ended in self.jobs_ended if ended not in unanswered] if answers_lost else []
        self.kept = [*read, *unanswered, *self.kept]
        self.jobs_ended.clear()
        self.to_master.clear()
        self.inbox.clear()

    def kill_over(self, key: tuple[str, str]) -> None:
        """A command is dead that was to be stopped, or to run again."""
        by = EndedBy.PREEMPTED if key in self.again else EndedBy.CANCELLED
        self.again.discard(key)
        self.command_over(key, Ended(by=by))

    def command_over(self, key: tuple[str, str], ended: Ended) -> None:
        held = self.ended_here[key] = self.held.pop(key, None) or self.stopping.pop(key)
        self.say(api.CommandEnded(job=held.job, task=held.request.task, origin=held.origin, ended=ended))
