"""How far a dataflow is, stage by stage: what orders jobs by what is left of them is told more than what is ready.

The master sees the tasks that it places end (Ursa §4.2.2: R is "updated … whenever a monotask of the job is
completed"); of the stages that come after those only the job manager knows.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.resources import KindAmounts
from penstock.opgraph.metadata import Metadata, TaskEstimate, expected
from penstock.opgraph.planning import Plan
from penstock.wire.agent_api import StageProgress


class FlowProgress:
    """Of one dataflow: which tasks were ready, with which estimates, and which are complete."""

    def __init__(self, plan: Plan, metadata: Metadata) -> None:
        self._plan = plan
        self._metadata = metadata
        self._ready = [0] * len(plan.stages)
        self._usage = [KindAmounts()] * len(plan.stages)  # estimated when they became ready, in bytes
        self._left = [len(stage.tasks) for stage in plan.stages]
        self._after = self._stages_before()

    def ready(self, known: TaskEstimate) -> None:
        """A task became ready."""
        stage = self._plan.tasks[known.task].stage
        self._ready[stage] += 1
        self._usage[stage] += known.usage

    def complete(self, task: int) -> None:
        """A task is over."""
        self._left[self._plan.tasks[task].stage] -= 1

    def stages(self) -> list[StageProgress]:
        """In the order of the plan. What is left of a stage is its tasks × the mean estimate of those that were ready,
        or, before the first is, what its inputs let expect."""
        return [
            StageProgress(
                stage=stage.name,
                tasks=len(stage.tasks),
                done=len(stage.tasks) - self._left[stage.index],
                after=[self._plan.stages[before].name for before in self._after[stage.index]],
                usage=self._usage_left(stage.index),
            )
            for stage in self._plan.stages
        ]

    def _usage_left(self, stage: int) -> KindAmounts:
        if not self._ready[stage]:
            return expected(self._plan, self._metadata, self._plan.stages[stage])
        part = self._left[stage] / self._ready[stage]
        known = self._usage[stage]
        return KindAmounts(known.cpu * part, known.disk * part, known.network * part)

    def _stages_before(self) -> list[Iterable[int]]:
        before: list[dict[int, None]] = [{} for _ in self._plan.stages]
        stage_of = {op: stage.index for stage in self._plan.stages for op in stage.ops}
        for link in self._plan.links:
            one, other = stage_of[link.before], stage_of[link.after]
            if one != other:
                before[other][one] = None
        return list(before)
