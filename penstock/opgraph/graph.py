"""A job's tasks and their dependencies: a directed graph without cycles."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.model.work import Opportunistic


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
                    raise GraphError(_unknown(task, dependency, self.tasks))
                self.dependents[dependency].append(task.name)
        self.depth = self._depths()

    def descendants(self, name: str) -> list[str]:
        """Return every task that waits for this one, directly or indirectly, each once."""
        found: dict[str, None] = {}
        pending = list(self.dependents[name])
        while pending:
            one = pending.pop()
            if one not in found:
                found[one] = None
                pending += self.dependents[one]
        return list(found)

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
        """Return each task's depth: the longest path from a task without dependencies (Kahn's algorithm)."""
        missing = {name: len(set(task.after)) for name, task in self.tasks.items()}
        depth = {name: 0 for name, count in missing.items() if not count}
        ready = list(depth)
        for name in ready:  # grows while it is walked
            for dependent in self.dependents[name]:
                missing[dependent] -= 1
                depth[dependent] = max(depth.get(dependent, 0), depth[name] + 1)
                if not missing[dependent]:
                    ready.append(dependent)
        if len(ready) < len(self.tasks):
            raise GraphError(f"tasks wait for each other in a circle: {' → '.join(self._cycle(missing))}")
        return depth

    def _cycle(self, missing: dict[str, int]) -> list[str]:
        """Return one cycle among the tasks that never became ready; each of these waits for another of them."""
        path = [next(name for name, count in missing.items() if count)]
        while True:
            step = next(name for name in self.tasks[path[-1]].after if missing[name])
            if step in path:
                return [*path[path.index(step) :], step]
            path.append(step)


def _unknown(task: TaskNode, dependency: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(dependency, list(known), 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"task {task.name!r}: after: there is no task {dependency!r}{hint}"
