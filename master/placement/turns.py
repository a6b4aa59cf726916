"""The turns of tasks and executors in a round, so that the order of the jobs holds between them.

Ursa places tasks, Elasecutor executors; neither has both. Placing one kind first would let a later job's executors take
what an earlier job's tasks wait for, or the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from master.ordering import Key, Ranking
from master.placement.scoring import Stage
from master.placement.tasks import TaskPlacement
from master.placement.ursa import Placement
from master.placement.workers import Need

#: Most turns in a round, as each one looks at all stages and machines. Later jobs' executors share the last turn.
_MOST_TURNS = 32


class ExecutorTurns(Protocol):
    """The executors that a round may place."""

    @property
    def jobs(self) -> Sequence[str]:
        """Return the jobs with an executor that some machine has room for."""
        ...

    def turn(self, jobs: Sequence[str]) -> Sequence[tuple[int, Need]]:
        """Place executors of these jobs; return the worker of each and what it takes there."""
        ...

    def tasks_placed(self, placements: Sequence[Placement]) -> None:
        """Take the room of these tasks out of what is free for executors."""
        ...


def place_in_turns(
    placement: TaskPlacement, stages: list[Stage], ranking: Ranking, executors: ExecutorTurns
) -> list[Placement]:
    """Place tasks by ``placement``, and each job's executors after the tasks of the jobs before it; return the tasks.

    Jobs with no such tasks between them have one turn, so that their executors are packed together. A ranking by shares
    counts what jobs receive in the round, and places the tasks before a turn as far as its own order has them there.
    """
    turns = _Turns(placement, stages, ranking, executors)
    for job in (waiting := turns.in_line(executors.jobs))[:_MOST_TURNS]:
        turns.before(job)
    turns.together += waiting[_MOST_TURNS:]
    turns.rest()
    return turns.placed


class _Turns:
    """A round's placement: the stages that are left, and the jobs whose executors have the next turn ``together``."""

    def __init__(
        self, placement: TaskPlacement, stages: list[Stage], ranking: Ranking, executors: ExecutorTurns
    ) -> None:
        self.placed: list[Placement] = []
        self.together: list[str] = []
        self._placement, self._stages, self._ranking, self._executors = placement, stages, ranking, executors
        self._whole = ranking.whole_stages  # as the round begins: keys of two kinds cannot be compared
        self._places = {job: -float(place) for place, job in enumerate(ranking.order())}

    def in_line(self, jobs: Sequence[str]) -> list[str]:
        """Return the jobs in their order."""
        return sorted(jobs, key=self._line, reverse=True)

    def before(self, job: str) -> None:
        """Place the tasks that come before a job's executors, which then have the next turn."""
        if self._ahead_of(job):
            self._give_turn()  # which may change the keys
        until = self._line(job)
        if ahead := self._ahead_of(job):
            placed = self._place([stage for stage in self._stages if stage in ahead], () if self._whole else until)
            self._executors.tasks_placed(placed)
            # what is left of a stage that still comes before fits nowhere in this round
            over = {stage for stage in ahead if self._whole or self._line(stage.job) > until}
            done = {one.need for one in placed}
            self._stages = [
                Stage(stage.job, stage.stage, [need for need in stage.needs if need not in done])
                if stage in ahead
                else stage
                for stage in self._stages
                if stage not in over
            ]
        self.together.append(job)

    def rest(self) -> None:
        """Place what is left."""
        self._give_turn()
        self._place(self._stages, ())

    def _ahead_of(self, job: str) -> set[Stage]:
        """Return the stages that come before a job's executors."""
        until = self._line(job)
        return {stage for stage in self._stages if self._line(stage.job) > until}

    def _line(self, job: str) -> Key:
        """Return a key that is larger the earlier the job is. A stage that fits better never precedes an executor."""
        return (self._places[job],) if self._whole else self._ranking.key(job, 0.0)

    def _place(self, stages: list[Stage], until: Key) -> list[Placement]:
        placed = self._placement.place(stages, self._ranking, until=until)
        self.placed += placed
        return placed

    def _give_turn(self) -> None:
        for worker, need in self._executors.turn(self.together) if self.together else ():
            self._placement.take(worker, need)
            self._ranking.charge(need.job, need.holds)
        self.together = []
