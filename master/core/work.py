"""What the master knows of a job's work: what it has received, what was announced, what is left of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model import KINDS, KindAmounts
from penstock.wire.agent_api import StageProgress
from penstock.wire.master_api import JobUse

#: So many stages of a job are remembered; of one that comes again after so many others the service is forgotten.
MOST_STAGES = 4096
#: A node that says less by no more than this has added up the same parts in another order.
_ROUNDING_S = 1e-3


@dataclass(slots=True)
class StageTally:
    """A stage whose tasks the master places: how many it was told of, how many are done, bytes per kind of the rest."""

    tasks: int = 0
    done: int = 0
    left: list[float] = field(default_factory=lambda: [0.0] * len(KINDS))


@dataclass(slots=True)
class Work:
    """Of one job. Work is in bytes per kind, service in container-seconds.

    ``told`` is how far a framework that schedules its tasks itself says it is, ``tallies`` counts the tasks that the
    master places. ``service`` is by stage what was attained while the stage was under way.
    """

    announced: list[float] = field(default_factory=lambda: [0.0] * len(KINDS))
    ended: list[float] = field(default_factory=lambda: [0.0] * len(KINDS))
    tallies: dict[str, StageTally] = field(default_factory=dict)
    told: list[StageProgress] = field(default_factory=list)
    service: dict[str, float] = field(default_factory=dict)
    service_s: float = 0.0
    seen: dict[str, JobUse] = field(default_factory=dict)  # by node: what it told last
    told_last: set[str] = field(default_factory=set)  # nodes where nothing of it is left, and all has been told
    finished: bool = False  # its framework left in order
    _under_way: list[str] | None = None  # None: to be found out

    @property
    def known(self) -> bool:
        """Whether anybody has said anything of its tasks."""
        return bool(self.told or self.tallies)

    @property
    def slots(self) -> int:
        """Slots that it holds on all nodes."""
        return sum(use.running for use in self.seen.values())

    @property
    def own(self) -> list[StageProgress]:
        """The stages whose tasks its framework schedules itself: told of, and none of their tasks came here."""
        return [stage for stage in self.told if stage.stage not in self.tallies]

    @property
    def tasks_left(self) -> int:
        """Of all stages that somebody told of; of those whose tasks come here at least the tasks that came."""
        told = {stage.stage: stage.tasks - stage.done for stage in self.told}
        came = {stage: tally.tasks - tally.done for stage, tally in self.tallies.items()}
        return sum(max(0, told.get(stage, 0), came.get(stage, 0)) for stage in told.keys() | came.keys())

    @property
    def complete(self) -> bool:
        """Whether its framework was done: as it says itself, or as far as its latest progress lets tell."""
        if self.finished:
            return True
        left = sum(stage.tasks - stage.done for stage in self.told)
        return 10 * left <= sum(stage.tasks for stage in self.told)

    def task_announced(self, stage: str, usage: KindAmounts) -> None:
        """A task became known."""
        self._under_way = None
        _add(self.announced, usage)
        if stage not in self.tallies and len(self.tallies) >= MOST_STAGES:
            self.tallies.pop(next(iter(self.tallies)))
        tally = self.tallies.setdefault(stage, StageTally())
        tally.tasks += 1
        _add(tally.left, usage)

    def task_ended(self, stage: str, usage: KindAmounts) -> None:
        """A task ended, however it did: it is no longer work to be done."""
        self._under_way = None
        _add(self.ended, usage)
        tally = self.tallies.get(stage)
        if tally is not None:
            tally.done += 1
            _subtract(tally.left, usage)

    def left(self) -> list[float]:
        """Of what was announced by tasks, per kind."""
        return [max(0.0, all_of_it - ended) for all_of_it, ended in zip(self.announced, self.ended, strict=True)]

    def to_come(self) -> tuple[list[float], int]:
        """Of the tasks that were told of and did not come here: bytes per kind, and how many they are.

        What ended here since then is not left, though it was when it was told.
        """
        work, tasks = [0.0] * len(KINDS), 0
        for stage in self.told:
            tally = self.tallies.get(stage.stage, _NOTHING)
            left = max(0, stage.tasks - max(stage.done, tally.done))
            if left:
                tasks += max(0, left - (tally.tasks - tally.done))
                part = left / (stage.tasks - stage.done)
                told = [amount * part for amount in _by_kind(_usage(stage))]
                _add(work, KindAmounts(*told).minus(KindAmounts(*tally.left)))
        return work, tasks

    @property
    def done(self) -> int:
        """Tasks that are done, of all stages that somebody told of."""
        told = {stage.stage: stage.done for stage in self.told}
        here = {stage: tally.done for stage, tally in self.tallies.items()}
        return sum(max(told.get(stage, 0), here.get(stage, 0)) for stage in told.keys() | here.keys())

    def tell(self, stages: list[StageProgress]) -> None:
        """Its framework says how far it is; stages that it no longer names are over."""
        self.told, self._under_way = stages, None
        named = {stage.stage for stage in stages}
        self.service = {stage: s for stage, s in self.service.items() if stage in named or stage in self.tallies}

    def attained(self, node: str, use: JobUse) -> None:
        """A node says what the job has received there so far. One that says less than before has started anew, and
        so does one after its last."""
        before = self.seen.get(node)
        known = before.service_s if before is not None else 0.0
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
        for stage in under_way:
            self.service[stage] = self.service.get(stage, 0.0) + gained / len(under_way)
        while len(self.service) > 2 * MOST_STAGES:
            del self.service[next(iter(self.service))]

    def under_way(self) -> list[str]:
        """Stages with tasks left that wait for no other stage."""
        if self._under_way is not None:
            return self._under_way
        unfinished = {stage.stage for stage in self.told if stage.done < stage.tasks}
        told = [s.stage for s in self.told if s.stage in unfinished and unfinished.isdisjoint(s.after)]
        came = [stage for stage, tally in self.tallies.items() if tally.done < tally.tasks]
        self._under_way = list(dict.fromkeys(told + came))
        return self._under_way

    def gone(self, node: str) -> None:
        """A node is lost, and the slots that the job held there; what it received there it has received."""
        use = self.seen.get(node)
        if use is not None:
            self.seen[node] = JobUse(job=use.job, service_s=use.service_s)


#: Of a stage none of whose tasks came.
_NOTHING = StageTally()


def _usage(stage: StageProgress) -> KindAmounts:
    """What is left of a stage in bytes per kind; of whom says only how much in all, CPU."""
    return stage.usage if any(_by_kind(stage.usage)) else KindAmounts(cpu=float(stage.input_bytes))


def _by_kind(usage: KindAmounts) -> tuple[float, float, float]:
    return usage.cpu, usage.disk, usage.network


def _add(to: list[float], usage: KindAmounts) -> None:
    for kind, amount in enumerate(_by_kind(usage)):
        to[kind] += amount


def _subtract(of: list[float], usage: KindAmounts) -> None:
    for kind, amount in enumerate(_by_kind(usage)):
        of[kind] = max(0.0, of[kind] - amount)
