"""The output of `penstock submit`: progress while the job runs, a table or JSON at its end."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from penstock.cli.plain_text import columns, duration, printable
from penstock.opgraph import JobManager, TaskSettled, TaskState

if TYPE_CHECKING:
    from penstock.cli.bars import Bars

_HEADER = ("task", "stage", "node", "seconds", "exit", "state", "reason")
_RIGHT = frozenset({"seconds", "exit"})
#: The most failed tasks that have a line above the bars; the table at the end has all.
_FAILURES = 20
_STYLES = {TaskState.DONE: "green", TaskState.FAILED: "red", TaskState.CANCELLED: "yellow", TaskState.SKIPPED: "dim"}


class Report:
    """Progress on standard error: on a terminal, a bar for the job and for each active stage, and a line for each
    of the first failed tasks; otherwise a line for each ended task; with ``quiet``, only failures, and what it waits
    for.

    Only a terminal needs rich, whose import takes 50 ms; scripts that submit many short jobs avoid it.
    """

    def __init__(self, name: str, manager: JobManager, *, quiet: bool = False) -> None:
        self._manager = manager
        self._name = name
        self._quiet = quiet
        self._failures = 0
        self._bars: Bars | None = None

    def begins(self, job: str) -> None:
        """Report the accepted job's id."""
        if not self._quiet:
            self.say(accepted(self._name, job))

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not self._quiet:
            from penstock.cli.bars import Bars
            from penstock.cli.render import console

            self._bars = Bars(self._name, self._manager, console(stderr=True))
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        """Print a line for the user."""
        line = printable(f"penstock submit: {text}")
        if self._bars is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bars.say(line)

    def show(self) -> None:
        """Update the bars."""
        if self._bars is not None:
            self._bars.show()

    def settled(self, settled: TaskSettled) -> None:
        """Report the end of a task."""
        failed = settled.state is TaskState.FAILED
        self._failures += failed
        if self._bars is not None and not (failed and self._failures <= _FAILURES):  # each line draws the bars anew
            return
        if self._quiet and not failed:
            return
        node = self._manager.nodes.get(settled.task)
        ended = self._manager.ends.get(settled.task)
        place = f" on {node}" if node else ""
        took = f" in {duration(ended.wall_seconds)}" if ended is not None and ended.wall_seconds else ""
        status = f"exit status {ended.exit_status}" if ended is not None and ended.exit_status else ""
        reason = f": {why}" if (why := settled.reason or status) else ""
        count = f"({self._manager.tasks_over} of {len(self._manager.states)})"
        self.say(f"{settled.task} {settled.state.value}{place}{took}{reason} {count}")


def accepted(name: str, job: str) -> str:
    """Return the line that announces the job's id; a detached submission waits for it."""
    return f"{name} is job {job}"


def results(manager: JobManager, outputs: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one entry for each task, in the order of the file."""
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
    """Print the results as JSON."""
    import json

    succeeded = all(state is TaskState.DONE for state in manager.states.values())
    document = {"job": job, "name": name, "succeeded": succeeded, "tasks": results(manager, outputs)}
    print(json.dumps(document, indent=2))


def print_table(manager: JobManager, outputs: Mapping[str, str]) -> None:
    """Print the results as a table; the last lines of failed tasks' output go to standard error."""
    entries = results(manager, outputs)
    rows = [_row(entry) for entry in entries]
    if sys.stdout.isatty():
        _print_colored([entry["state"] for entry in entries], rows)
    else:
        print("\n".join(columns(_HEADER, rows, _RIGHT)))
    for task, text in outputs.items():
        print(f"--- {printable(task)}", *map(printable, text.splitlines()), sep="\n", file=sys.stderr)


def _row(entry: Mapping[str, Any]) -> list[str]:
    """Return the cells of a task's line, as in :data:`_HEADER`."""
    seconds, status = entry["seconds"], entry["exit_status"]
    return [
        entry["task"],
        entry["stage"],
        entry["node"] or "",
        "" if seconds is None else f"{seconds:.2f}",
        "" if status is None else str(status),
        entry["state"],
        entry["reason"],
    ]


def _print_colored(states: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on a terminal, with coloured states and wrapped texts."""
    from penstock.cli.render import console, plain, table

    shown = table(*_HEADER)
    for column in shown.columns:
        column.justify = "right" if column.header in _RIGHT else "left"
    for state, row in zip(states, rows, strict=True):
        cells = [plain(cell) for cell in row]
        cells[_HEADER.index("state")].stylize(_STYLES[TaskState(state)])
        shown.add_row(*cells)
    console().print(shown)
