"""The course of a job: which stages are ready, which tasks have ended, and when."""

from __future__ import annotations

from simulator.tasks.workload import SimulatedJob, SimulatedStage, SimulatedTask


class Course:
    """The course of one job. Times are in simulated seconds."""

    def __init__(self, job: SimulatedJob) -> None:
        self.job = job
        self.started_at_s: float | None = None
        self.ended_at_s: float | None = None
        self.rejected = False  # its reservation was declined
        self.tasks_ended = 0
        #: Stage → the time when its tasks became ready, and the times when they ended.
        self.ready_at_s: dict[str, float] = {}
        self.task_ends_s: dict[str, list[float]] = {stage.name: [] for stage in job.stages}
        self.tasks: dict[str, SimulatedTask] = {task.name: task for stage in job.stages for task in stage.tasks}
        self.stage_of = {task.name: stage.name for stage in job.stages for task in stage.tasks}
        self.left = {stage.name: {task.name for task in stage.tasks} for stage in job.stages}
        self._unfinished = sum(1 for left in self.left.values() if left)

    def newly_ready(self, now_s: float) -> list[SimulatedStage]:
        """Return stages whose awaited stages have all ended; each stage is returned once."""
        ready = [
            stage
            for stage in self.job.stages
            if stage.name not in self.ready_at_s and not any(self.left[name] for name in stage.after)
        ]
        for stage in ready:
            self.ready_at_s[stage.name] = now_s
        return ready

    def done(self, task: str, now_s: float) -> bool:
        """Record the end of a task; return whether its stage has ended, too."""
        stage = self.stage_of[task]
        self.left[stage].discard(task)
        self.task_ends_s[stage].append(now_s)
        self.tasks_ended += 1
        if self.left[stage]:
            return False
        self._unfinished -= 1
        if not self._unfinished:
            self.ended_at_s = now_s
        return True

    def stage_times_s(self) -> list[list[float]]:
        """Return, per stage, the seconds from its readiness to the end of each task."""
        return [[at_s - self.ready_at_s[stage] for at_s in ends] for stage, ends in self.task_ends_s.items() if ends]
