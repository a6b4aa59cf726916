"""What `penstock submit` shows: progress while the job runs, a table or JSON at its end."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.cli import render
from penstock.opgraph import JobManager, TaskSettled, TaskState

_STYLES = {TaskState.DONE: "green", TaskState.FAILED: "red", TaskState.CANCELLED: "yellow", TaskState.SKIPPED: "dim"}


#: So many stages have a bar at a time: a terminal is 24 lines high.
_BARS = 12


class Report:
    """On standard error while it runs: on a terminal a bar for each stage that is under way and one for the job, else
    one line for each task that ended; ``quiet``: nothing but what went wrong."""

    def __init__(self, name: str, manager: JobManager, *, quiet: bool = False) -> None:
        self._manager = manager
        self._name = name
        self._quiet = quiet
        self._console = render.console(stderr=True)
        self._bars: Progress | None = None
        self._total: TaskID
        self._stages: dict[str, TaskID] = {}

    def begins(self, job: str) -> None:
        """The job is accepted under this id."""
        if not self._quiet:
            self.say(accepted(self._name, job))

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bars = Progress(*columns, TextColumn("{task.fields[now]}"), console=self._console, transient=True)
            self._total = self._bars.add_task(render.plain(self._name).plain, total=len(self._manager.states), now="")
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        """A line for the user."""
        self._console.print(render.plain(f"penstock submit: {text}"), soft_wrap=True)

    def show(self) -> None:
        """Bring the bars up to date: a few times a second, as it looks at every task."""
        if self._bars is None:
            return
        states, tasks = self._manager.states, self._manager.graph.tasks
        self._bars.update(self._total, completed=sum(state.over for state in states.values()))
        placed = Counter(tasks[name].stage for name, state in states.items() if state is TaskState.PLACED)
        begun = {tasks[name].stage for name in (*self._manager.nodes, *self._manager.ends)}
        under_way = [stage for stage in self._manager.progress() if stage.stage in begun and stage.done < stage.tasks]
        for gone in self._stages.keys() - {stage.stage for stage in under_way[:_BARS]}:
            self._bars.remove_task(self._stages.pop(gone))
        for stage in under_way[:_BARS]:
            if stage.stage not in self._stages:
                name = f"  {render.plain(stage.stage)}"
                self._stages[stage.stage] = self._bars.add_task(name, total=stage.tasks, now="")
            now = f"{placed[stage.stage]} placed" if placed[stage.stage] else ""
            self._bars.update(self._stages[stage.stage], completed=stage.done, now=now)

    def settled(self, settled: TaskSettled) -> None:
        """A task is over."""
        if self._bars is not None or self._quiet:
            return
        over = sum(state.over for state in self._manager.states.values())
        node = self._manager.nodes.get(settled.task)
        ended = self._manager.ends.get(settled.task)
        place = f" on {node}" if node else ""
        took = f" in {render.duration(ended.wall_seconds)}" if ended is not None and ended.wall_seconds else ""
        reason = f": {settled.reason}" if settled.reason else ""
        self.say(f"{settled.task} {settled.state.value}{place}{took}{reason} ({over} of {len(self._manager.states)})")


def accepted(name: str, job: str) -> str:
    """What is said when a job has its id; who detached from it waits for this line."""
    return f"{name} is job {job}"


def results(manager: JobManager, outputs: Mapping[str, str]) -> list[dict[str, Any]]:
    """One entry for each task, in the order of the file."""
    entries = []
    for name, task in manager.graph.tasks.items():
        ended = manager.ends.get(name)
        entry: dict[str, Any] = {
            "task": name,
            "stage": task.stage,
            "state": manager.states[name].value,
            "node": manager.nodes.get(name),
            "by": ended.by.value if ended is not None else None,
            "exit_status": ended.exit_status if ended is not None else None,
            "seconds": ended.wall_seconds if ended is not None else None,
            "cpu_seconds": ended.cpu_seconds if ended is not None else None,
            "memory_peak_bytes": ended.memory_peak_bytes if ended is not None else None,
            "reason": manager.reasons.get(name, ""),
        }
        if name in outputs:
            entry["output"] = outputs[name]
        entries.append(entry)
    return entries


def print_json(job: str, name: str, manager: JobManager, outputs: Mapping[str, str]) -> None:
    """The machine-readable end."""
    succeeded = all(state is TaskState.DONE for state in manager.states.values())
    document = {"job": job, "name": name, "succeeded": succeeded, "tasks": results(manager, outputs)}
    print(json.dumps(document, indent=2))


def print_table(manager: JobManager, outputs: Mapping[str, str]) -> None:
    """The end for people; the last lines of what failed tasks wrote go to standard error."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("task", "stage", "node", "seconds", "exit", "state", "reason"):
        table.add_column(column, justify="right" if column in {"seconds", "exit"} else "left", overflow="fold")
    for entry in results(manager, outputs):
        state = render.plain(entry["state"])
        state.stylize(_STYLES[TaskState(entry["state"])])
        seconds, status = entry["seconds"], entry["exit_status"]
        table.add_row(
            render.plain(entry["task"]),
            render.plain(entry["stage"]),
            render.plain(entry["node"] or ""),
            "" if seconds is None else f"{seconds:.2f}",
            "" if status is None else str(status),
            state,
            render.plain(entry["reason"]),
        )
    render.console().print(table)
    for task, text in outputs.items():
        print(
            f"--- {render.plain(task)}", *(render.plain(line) for line in text.splitlines()), sep="\n", file=sys.stderr
        )
