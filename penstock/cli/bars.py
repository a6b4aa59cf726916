"""The bars that `penstock submit` shows on a terminal: one for the job, one for each active stage."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from penstock.cli.plain_text import printable
from penstock.opgraph import JobManager, TaskState

#: The most stages with a bar: a terminal is 24 lines high.
_MOST = 12


class Bars:
    """Shown from :meth:`start` to :meth:`stop`; :meth:`show` updates them."""

    def __init__(self, name: str, manager: JobManager, console: Console) -> None:
        self._manager = manager
        self._console = console
        name_column = TextColumn("{task.description}", markup=False)  # a stage may be called "[/]"
        columns = (name_column, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[now]}"), console=console, transient=True)
        self._total = self._progress.add_task(printable(name), total=len(manager.states), now="")
        self._stages: dict[str, TaskID] = {}

    def start(self) -> None:
        """Draw the bars."""
        self._progress.start()

    def stop(self) -> None:
        """Remove the bars."""
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._console.print(text, markup=False, soft_wrap=True)

    def show(self) -> None:
        """Update the bars. Call it a few times a second at most, as it visits every task."""
        states, tasks = self._manager.states, self._manager.graph.tasks
        self._progress.update(self._total, completed=self._manager.tasks_over)
        placed = Counter(tasks[name].stage for name, state in states.items() if state is TaskState.PLACED)
        begun = {tasks[name].stage for name in (*self._manager.nodes, *self._manager.ends)}
        under_way = [stage for stage in self._manager.progress() if stage.stage in begun and stage.done < stage.tasks]
        for gone in self._stages.keys() - {stage.stage for stage in under_way[:_MOST]}:
            self._progress.remove_task(self._stages.pop(gone))
        for stage in under_way[:_MOST]:
            if stage.stage not in self._stages:
                name = f"  {printable(stage.stage)}"
                self._stages[stage.stage] = self._progress.add_task(name, total=stage.tasks, now="")
            now = f"{placed[stage.stage]} placed" if placed[stage.stage] else ""
            self._progress.update(self._stages[stage.stage], completed=stage.done, now=now)
