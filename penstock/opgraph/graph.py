"""A job's tasks and their dependencies: a directed graph without cycles."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.model.near_names import did_you_mean
from penstock.model.work import Opportunistic
from penstock.opgraph.order import CircleError, in_order, reachable

#: The most tasks of a circle that an error names.
_NAMED = 10


class TaskNode(msgspec.Struct, frozen=True):
    """A task of the graph. ``stage`` is the name of its stage, one step of the job (Ursa §4.2.2)."""

    name: str
    stage: str
    after: tuple[str, ...] = ()
    memory_bytes: int = 0
    opportunistic: Opportunistic = False


class GraphError(ValueError):
    """A graph that cannot be executed. The message names the task."""


class TaskGraph:
    """A checked graph: names are unique, every dependency exists, there is no cycle.

    Raises:
        GraphError: the graph is not so, or has no task.
    """

    def __init__(self, tasks: Iterable[TaskNode]) -> None:
        self.tasks: dict[str, TaskNode] = {}
        for task in tasks:
            if task.name in self.tasks:
                raise GraphError(f"task {task.name!r}: there are two tasks of this name")
            self.tasks[task.name] = task
        if not self.tasks:
            raise GraphError("there is no task to run")
        self.dependents: dict[str, list[str]] = {name: [] for name in self.tasks}
        for task in self.tasks.values():
            for dependency in dict.fromkeys(task.after):
                if dependency not in self.tasks:
                    hint = did_you_mean(dependency, self.tasks, "name one of this job")
                    raise GraphError(f"task {task.name!r}: after: there is no task {dependency!r}; {hint}")
                self.dependents[dependency].append(task.name)
        self.depth = self._depths()

    def descendants(self, name: str) -> list[str]:
        """Return every task that waits for this one, directly or indirectly, each once."""
        return list(reachable(self.dependents[name], self.dependents))

    def largest_level_bytes(self) -> int:
        """Return the largest memory request of tasks of equal depth: an estimate of the job's peak memory, M(j).

        A task that runs only on slack does not count, as it has no reserved memory.
        """
        levels: dict[int, int] = {}
        for name, depth in self.depth.items():
            task = self.tasks[name]
            levels[depth] = levels.get(depth, 0) + (0 if task.opportunistic == "only" else task.memory_bytes)
        return max(levels.values(), default=0)

    def _depths(self) -> dict[str, int]:
        """Return each task's depth: the longest path from a task without dependencies."""
        try:
            order = in_order({name: task.after for name, task in self.tasks.items()})
        except CircleError as error:
            circle = error.circle[::-1]
            shown = circle if len(circle) <= _NAMED else [*circle[: _NAMED - 1], "…", circle[-1]]
            raise GraphError(f"tasks wait for each other in a circle: {' → '.join(shown)}") from None
        depth: dict[str, int] = {}
        for name in order:
            depth[name] = 1 + max((depth[before] for before in self.tasks[name].after), default=-1)
        return depth
