"""The master's knowledge of a job's work: received, announced, and left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import astuple

from penstock.model import KINDS, KindAmounts
from penstock.wire.agent_api import StageProgress
from penstock.wire.master_api import JobUse

#: Largest number of stages stored for a job; the service of the oldest ones is dropped.
MOST_STAGES = 4096
#: A decrease of a node's report by no more than this is a rounding error of sums in another order.
_ROUNDING_S = 1e-3


@dataclass(slots=True)
class StageTally:
    """A stage whose tasks the master places: the announced and the finished tasks, and bytes per kind of the rest."""

    tasks: int = 0
    done: int = 0
    left: list[float] = field(default_factory=lambda: [0.0] * len(KINDS))


class _Rest(NamedTuple):
    """What follows from the announced and the ended tasks alone, however much service the job has received."""

    left: tuple[float, ...]
    to_come: tuple[tuple[float, ...], int]
    tasks_left: int
    own_ready: int
    done: int
    under_way: tuple[str, ...]


@dataclass(slots=True)
class Work:
    """The work of one job, in bytes per kind; service is in container-seconds.

    ``told`` is the reported progress of a framework that schedules its own tasks, ``tallies`` counts the tasks that the
    master places. ``service`` is, by stage, the service attained while the stage was under way.
    """

    announced: list[float] = field(default_factory=lambda: [0.0] * len(KINDS))
    ended: list[float] = field(default_factory=lambda: [0.0] * len(KINDS))
    tallies: dict[str, StageTally] = field(default_factory=dict)
    told: list[StageProgress] = field(default_factory=list)
    service: dict[str, float] = field(default_factory=dict)
    service_s: float = 0.0
    idle_service_s: float = 0.0  # the part attained while no stage was under way, as while a program starts
    seen: dict[str, JobUse] = field(default_factory=dict)  # by node: its last report
    ended_tasks: int = 0  # of those that the master places
    unknown: int = 0  # tasks left of those that the master places and that came without bytes
    slots: int = 0  # those held on all nodes: what their last reports say together
    told_last: set[str] = field(default_factory=set)  # nodes with nothing left of the job, and all reported
    finished: bool = False  # its framework completed it
    failed: str = ""  # why it failed, as its framework reported
    abandoned: bool = False  # its last connection was lost
    undone: bool = False  # it was over before some of its tasks, as its origin reported afterwards
    _rest: _Rest | None = None  # None: to be computed

    @classmethod
    def resumed(cls, job: str, service_s: float, reported_s: Mapping[str, float]) -> Work:
        """Return the record of a job with this service, to which the nodes' next reports add what is new in them.

        ``reported_s``: the service in the latest report of each node.
        """
        seen = {node: JobUse(job=job, service_s=each_s) for node, each_s in reported_s.items()}
        return cls(service_s=service_s, seen=seen)

    @property
    def own(self) -> list[StageProgress]:
        """Return the stages whose tasks its framework schedules itself: reported, with no task sent to the master."""
        return [stage for stage in self.told if stage.stage not in self.tallies]

    @property
    def tasks_left(self) -> int:
        """Return the tasks left in all reported stages; at least those sent to the master."""
        return self._known().tasks_left

    @property
    def own_ready(self) -> int:
        """Return the tasks left in those stages under way whose tasks the job's framework schedules itself."""
        return self._known().own_ready

    @property
    def complete(self) -> bool:
        """Return whether its framework completed it, as it reported, or as inferred from its latest progress."""
        if self.undone:
            return False
        if self.finished or self.failed:
            return self.finished
        if self.abandoned and not (self.told or self.ended_tasks or self.service_s):
            return False  # nothing is known to have been done
        left = sum(stage.tasks - stage.done for stage in self.told)
        return 10 * left <= sum(stage.tasks for stage in self.told)

    def task_announced(self, stage: str, usage: KindAmounts) -> None:
        """Count a new task."""
        self._rest = None
        _add(self.announced, usage)
        self.unknown += not any(astuple(usage))
        if stage not in self.tallies and len(self.tallies) >= MOST_STAGES:
            self.tallies.pop(next(iter(self.tallies)))
        tally = self.tallies.setdefault(stage, StageTally())
        tally.tasks += 1
        _add(tally.left, usage)

    def task_ended(self, stage: str, usage: KindAmounts) -> None:
        """Count a task that ended in any way: its work is no longer left."""
        self._rest = None
        _add(self.ended, usage)
        self.ended_tasks += 1
        self.unknown -= not any(astuple(usage))
        tally = self.tallies.get(stage)
        if tally is not None:
            tally.done += 1
            for kind, amount in enumerate(astuple(usage)):
                tally.left[kind] = max(0.0, tally.left[kind] - amount)

    def left(self) -> tuple[float, ...]:
        """Return the rest of the announced work, per kind."""
        return self._known().left

    def to_come(self) -> tuple[tuple[float, ...], int]:
        """Return the bytes per kind, and the number, of reported tasks that were not sent to the master.

        Tasks that ended here since the report are subtracted.
        """
        return self._known().to_come

    @property
    def done(self) -> int:
        """Return the finished tasks of all reported stages."""
        return self._known().done if self.told else self.ended_tasks

    @property
    def skipped(self) -> int:
        """Return those of the finished tasks that were never run, as a task before them failed."""
        return sum(stage.skipped for stage in self.told)

    def report(self, stages: list[StageProgress]) -> None:
        """Store a framework's progress; stages no longer named are over.

        Of a stage that is named twice, the last counts, so that no sum over the stages has its tasks twice.
        """
        named = {stage.stage: stage for stage in stages}
        self.told, self._rest = list(named.values()), None
        self.service = {stage: s for stage, s in self.service.items() if stage in named or stage in self.tallies}

    def attained(self, node: str, use: JobUse) -> bool:
        """Add a node's report of the service received there so far; return whether it differs from the
        node's latest report. A decrease means that the node's count has restarted, as does a report after the last one.
        """
        before = self.seen.get(node)
        if use == before:
            return False
        known = before.service_s if before is not None else 0.0
        self.slots += (0 if use.last else use.running) - (before.running if before is not None else 0)
        gained = use.service_s - known
        if gained < 0:
            gained = use.service_s if gained < -_ROUNDING_S else 0.0
        if use.last:
            self.seen.pop(node, None)
            self.told_last.add(node)
        else:
            self.seen[node] = use
            self.told_last.discard(node)
        self.service_s += gained
        under_way = self.under_way() if gained else []
        if not under_way:
            self.idle_service_s += gained
        for stage in under_way:
            self.service[stage] = self.service.get(stage, 0.0) + gained / len(under_way)
        while len(self.service) > 2 * MOST_STAGES:
            del self.service[next(iter(self.service))]
        return True

    def under_way(self) -> tuple[str, ...]:
        """Return the stages with tasks left that wait for no other stage."""
        return self._known().under_way

    def gone(self, node: str) -> None:
        """Drop the slots held on a lost node; service received there still counts."""
        use = self.seen.get(node)
        if use is not None:
            self.seen[node] = JobUse(job=use.job, service_s=use.service_s)
            self.slots -= use.running

    def _known(self) -> _Rest:
        if self._rest is None:
            told = {stage.stage: stage for stage in self.told}
            both = [
                (told.get(stage, _UNTOLD), self.tallies.get(stage, _NOTHING)) for stage in told.keys() | self.tallies
            ]
            under_way = self._stages_under_way()
            self._rest = _Rest(
                left=tuple(
                    max(0.0, all_of_it - ended) for all_of_it, ended in zip(self.announced, self.ended, strict=True)
                ),
                to_come=self._unsent(),
                tasks_left=sum(max(0, own.tasks - own.done, tally.tasks - tally.done) for own, tally in both),
                own_ready=sum(max(0, own.tasks - own.done) for own in self.own if own.stage in under_way),
                done=sum(max(own.done, tally.done) for own, tally in both),
                under_way=under_way,
            )
        return self._rest

    def _unsent(self) -> tuple[tuple[float, ...], int]:
        work, tasks = [0.0] * len(KINDS), 0
        for stage in self.told:
            tally = self.tallies.get(stage.stage, _NOTHING)
            left = max(0, stage.tasks - max(stage.done, tally.done))
            if left:
                tasks += max(0, left - (tally.tasks - tally.done))
                part = left / (stage.tasks - stage.done)
                told = [amount * part for amount in astuple(_usage(stage))]
                _add(work, KindAmounts(*told).minus(KindAmounts(*tally.left)))
        return tuple(work), tasks

    def _stages_under_way(self) -> tuple[str, ...]:
        unfinished = {stage.stage for stage in self.told if stage.done < stage.tasks}
        told = [s.stage for s in self.told if s.stage in unfinished and unfinished.isdisjoint(s.after)]
        came = [stage for stage, tally in self.tallies.items() if tally.done < tally.tasks]
        return tuple(dict.fromkeys(told + came))


#: The tally of a stage without tasks sent to the master.
_NOTHING = StageTally()
#: The progress of a stage of which the framework has reported nothing.
_UNTOLD = StageProgress(stage="", tasks=0, done=0)


def _usage(stage: StageProgress) -> KindAmounts:
    """Return the rest of a stage in bytes per kind; a framework's undivided total counts as CPU."""
    return stage.usage if any(astuple(stage.usage)) else KindAmounts(cpu=float(stage.input_bytes))


def _add(to: list[float], usage: KindAmounts) -> None:
    for kind, amount in enumerate(astuple(usage)):
        to[kind] += amount
