"""A progress bar on standard error, shown if that is a terminal."""

from __future__ import annotations

from typing import Self

from rich import progress

from penstock.cli.render import console


class Progress:
    """A progress bar: ``with Progress("title", 12) as bar: …; bar.step()``. Silent if standard error is no terminal."""

    def __init__(self, title: str, total: int) -> None:
        to = console(stderr=True)
        columns = (
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
        )
        self._bar = progress.Progress(*columns, console=to, transient=True, disable=not to.is_terminal)
        self._row = self._bar.add_task(title, total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self) -> None:
        """Advance the bar by one."""
        self._bar.advance(self._row)
