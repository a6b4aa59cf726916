"""What `penstock submit` shows: progress while the job runs, a table or JSON at its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.cli import render
from penstock.opgraph import JobManager, TaskSettled, TaskState

_STYLES = {TaskState.DONE: "green", TaskState.FAILED: "red", TaskState.CANCELLED: "yellow", TaskState.SKIPPED: "dim"}


class Report:
    """On standard error while it runs: a bar on a terminal, one line for each task that ended otherwise."""

    def __init__(self, name: str, manager: JobManager) -> None:
        self._manager = manager
        self._name = name
        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._row: Any = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._row = self._bar.add_task(render.plain(self._name).plain, total=len(self._manager.states))
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """A line for the user."""
        self._console.print(render.plain(f"penstock submit: {text}"), soft_wrap=True)

    def settled(self, settled: TaskSettled) -> None:
        """A task is over."""
        over = sum(state.over for state in self._manager.states.values())
        if self._bar is not None:
            self._bar.update(self._row, completed=over)
            return
        node = self._manager.nodes.get(settled.task)
        ended = self._manager.ends.get(settled.task)
        place = f" on {node}" if node else ""
        took = f" in {render.duration(ended.wall_seconds)}" if ended is not None and ended.wall_seconds else ""
        reason = f": {settled.reason}" if settled.reason else ""
        self.say(f"{settled.task} {settled.state.value}{place}{took}{reason} ({over} of {len(self._manager.states)})")


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
