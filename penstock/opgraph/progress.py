"""Track the progress of a dataflow by stage, for orderings by remaining work, which need more than the ready tasks.

The master sees the ends of the tasks that it places (Ursa §4.2.2: R is "updated … whenever a monotask of the job is
completed"). Only the job manager knows the stages after those.
"""

from __future__ import annotations

from penstock.model.resources import KindAmounts
from penstock.opgraph.metadata import Metadata, TaskEstimate, expected
from penstock.opgraph.planning import Plan
from penstock.wire.agent_api import StageProgress


class FlowProgress:
    """The progress of one dataflow: the tasks that were ready, with their estimates, and the complete tasks."""

    def __init__(self, plan: Plan, metadata: Metadata) -> None:
        self._plan = plan
        self._metadata = metadata
        self._ready = [0] * len(plan.stages)
        self._usage = [KindAmounts()] * len(plan.stages)  # estimated when they became ready, in bytes
        self._left = [len(stage.tasks) for stage in plan.stages]

    def ready(self, known: TaskEstimate) -> None:
        """Record that a task became ready."""
        stage = self._plan.tasks[known.task].stage
        self._ready[stage] += 1
        self._usage[stage] += known.usage

    def complete(self, task: int) -> int:
        """Record that a task is complete; return the number of tasks that are left of its stage."""
        stage = self._plan.tasks[task].stage
        self._left[stage] -= 1
        return self._left[stage]

    @property
    def over(self) -> bool:
        """Whether every task is complete."""
        return not any(self._left)

    def stages(self) -> list[StageProgress]:
        """Return the progress of the stages, in the order of the plan.

        A stage's remaining work is its remaining tasks × the mean estimate of its tasks that were ready. Before the
        first is ready, it is estimated from the stage's inputs.
        """
        return [
            StageProgress(
                stage=stage.name,
                tasks=len(stage.tasks),
                done=len(stage.tasks) - self._left[stage.index],
                after=[self._plan.stages[before].name for before in stage.after],
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
