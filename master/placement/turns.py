"""The turns of tasks and executors in a round, so that the order of the jobs holds between them.

Ursa places tasks, Elasecutor executors; neither has both. Placing one kind first would let a later job's executors take
what an earlier job's tasks wait for, or the reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from master.ordering import Key, Ranking
from master.placement.scoring import Stage
from master.placement.tasks import TaskPlacement
from master.placement.ursa import Placement
from master.placement.workers import Need

#: Most times that tasks are placed before executors in a round, as each one looks at all stages and machines. After
#: that, all executors left come first.
_MOST_TURNS = 32
#: A job by its key, negated so that the least goes first, and by its place among jobs with equal keys; or a group.
_Entry = tuple[Key, int, str]


class ExecutorTurns(Protocol):
    """The executors that a round may place."""

    @property
    def jobs(self) -> Sequence[str]:
        """Return the jobs with an executor that some machine has room for."""
        ...

    @property
    def one_by_one(self) -> bool:
        """Return whether :meth:`next_of` may be used."""
        ...

    def turn(self, jobs: Sequence[str]) -> Sequence[tuple[int, Need]]:
        """Place executors of these jobs; return the worker of each and its need there."""
        ...

    def next_of(self, job: str) -> tuple[int, Need] | None:
        """Place the next executor of a job that fits; return its worker and its need there. None: none fits."""
        ...

    def tasks_placed(self, placed: Sequence[tuple[int, Need]]) -> None:
        """Take the room of these tasks on their workers out of what is free for executors."""
        ...


@dataclass(frozen=True, slots=True)
class TaskTurns:
    """The tasks that a round may place.

    ``assign`` carries out placements. ``waiting``: jobs with commands that may start ahead of others where
    ``placement`` has no room; ``ahead`` places those of the jobs for which its argument is true, counts them in the
    ranking, and returns the worker of each.
    """

    placement: TaskPlacement
    stages: list[Stage]
    assign: Callable[[list[Placement]], None]
    waiting: set[str]
    ahead: Callable[[Callable[[str], bool]], list[tuple[int, Need]]]


def place_in_turns(tasks: TaskTurns, ranking: Ranking, executors: ExecutorTurns) -> list[tuple[int, Need]]:
    """Place tasks, and each job's executors after the tasks of the jobs before it; return the commands that started
    ahead.

    Jobs with no such tasks between them have one turn, so that their executors are packed together. A ranking by shares
    counts what jobs receive in the round: executors are placed one by one, if their policy permits, as each changes the
    order.
    """
    turns = _Turns(tasks, ranking, executors)
    turns.place()
    return turns.started


class _Turns:
    """A round's placement: the stages that are left, the jobs whose executors have the next turn ``together``, and the
    commands that ``started`` ahead.
    """

    def __init__(self, tasks: TaskTurns, ranking: Ranking, executors: ExecutorTurns) -> None:
        self.started: list[tuple[int, Need]] = []
        self._together: list[str] = []
        self._tasks, self._stages, self._ranking, self._executors = tasks, tasks.stages, ranking, executors
        self._whole = ranking.whole_stages  # as the round begins: keys of two kinds cannot be compared
        self._places = {job: -float(place) for place, job in enumerate(ranking.order())}

    def place(self) -> None:
        """Place executors and tasks in the order of their jobs."""
        waiting = _Line(self._key, self._group, self._executors.jobs)
        some = dict.fromkeys([*(stage.job for stage in self._stages), *self._tasks.waiting])
        tasks = _Line(self._key, self._group, some)
        turns = 0
        while (job := waiting.first()) is not None:
            until = self._key(job)
            if turns < _MOST_TURNS and (ahead := tasks.before(until)):
                turns += 1
                self._give_turn()
                tasks.enter(self._tasks_before({*ahead}, until))
            elif self._whole or not self._executors.one_by_one:
                waiting.pop()
                self._together.append(job)
            elif (one := self._executors.next_of(job)) is not None:
                self._count(*one)
            else:
                waiting.pop()
        self._give_turn()
        self._place(self._stages, ())

    def _tasks_before(self, jobs: set[str], until: Key) -> list[str]:
        """Place tasks of these jobs, which come before ``until``; return the jobs that no longer do. What the others
        have left fits nowhere in this round.
        """
        ahead = [stage for stage in self._stages if stage.job in jobs]
        placed = self._place(ahead, () if self._whole else until)
        if jobs & self._tasks.waiting:
            more = self._tasks.ahead(lambda job: job in jobs and self._key(job) > until)
            for worker, need in more:
                self._tasks.placement.take(worker, need)
            self.started += more
            placed += more
        self._executors.tasks_placed(placed)
        later = [] if self._whole else [job for job in jobs if self._key(job) <= until]
        done = {(need.job, need.task) for _, need in placed}
        self._stages = [
            Stage(stage.job, stage.stage, [need for need in stage.needs if (need.job, need.task) not in done])
            if stage.job in jobs
            else stage
            for stage in self._stages
            if stage.job not in jobs or stage.job in later
        ]
        return later

    def _key(self, job: str) -> Key:
        """Return a key that is larger the earlier the job is. A stage that fits better never precedes an executor."""
        return (self._places[job],) if self._whole else self._ranking.key(job, 0.0)

    def _group(self, job: str) -> tuple[str, int]:
        return ("", 0) if self._whole else self._ranking.group(job)

    def _place(self, stages: list[Stage], until: Key) -> list[tuple[int, Need]]:
        placed = self._tasks.placement.place(stages, self._ranking, until=until) if stages else []
        self._tasks.assign(placed)
        return [(one.worker, one.need) for one in placed]

    def _give_turn(self) -> None:
        for worker, need in self._executors.turn(self._together) if self._together else ():
            self._count(worker, need)
        self._together = []

    def _count(self, worker: int, need: Need) -> None:
        """Count a placed executor for the tasks after it."""
        self._tasks.placement.take(worker, need)
        self._ranking.charge(need.job, need.holds)


class _Line:
    """Jobs by their keys, the largest first. Within a round keys only fall: an outdated one is renewed at the front.

    A placed task may move all jobs of a group (:meth:`master.ordering.Ranking.group`), but only its own job within it.
    So only the first job of each group is compared with those of other groups.
    """

    def __init__(self, key: Callable[[str], Key], group: Callable[[str], tuple[str, int]], jobs: Iterable[str]) -> None:
        self._key, self._group = key, group
        self._groups: dict[str, list[_Entry]] = {}  # heaps of jobs by what their keys do not have in common
        self._heap: list[_Entry] = []  # the groups by their first job's key
        self._add(enumerate(jobs))  # of equal keys, the earlier

    def first(self) -> str | None:
        """Return the job with the largest key; None where none is left."""
        while self._heap:
            behind, place, name = self._heap[0]
            now, at, job = self._first_of(self._groups[name])
            if (now, at) == (behind, place):
                return job
            heapreplace(self._heap, (now, at, name))
        return None

    def pop(self) -> None:
        """Remove the first job, as :meth:`first` has just found it."""
        group = self._groups[self._heap[0][2]]
        heappop(group)
        if not group:
            heappop(self._heap)

    def before(self, until: Key) -> list[str]:
        """Remove and return the jobs with larger keys than this."""
        found: list[str] = []
        bound = tuple(-each for each in until)
        while self._heap and self._heap[0][0] < bound and (job := self.first()) is not None:
            if self._heap[0][0] < bound:
                found.append(job)
                self.pop()
        return found

    def enter(self, jobs: Sequence[str]) -> None:
        """Enter jobs again."""
        if jobs:
            self._add((-1, job) for job in jobs)

    def _add(self, jobs: Iterable[tuple[int, str]]) -> None:
        for place, job in jobs:
            name, common = self._group(job)
            heappush(self._groups.setdefault(name, []), (self._behind(job)[common:], place, job))
        firsts = [(name, self._first_of(group)) for name, group in self._groups.items() if group]
        self._heap = [(behind, place, name) for name, (behind, place, _) in firsts]
        heapify(self._heap)

    def _first_of(self, group: list[_Entry]) -> _Entry:
        """Return the first job of a group with its present key."""
        while True:
            own, place, job = group[0]
            behind = self._behind(job)
            now = behind[self._group(job)[1] :]
            if now == own:
                return behind, place, job
            heapreplace(group, (now, place, job))

    def _behind(self, job: str) -> Key:
        return tuple(-each for each in self._key(job))
