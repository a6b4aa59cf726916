"""What was so over the last minutes: a ring of fixed size. It neither reads a clock nor a file."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import dropwhile

#: Ten minutes at one row per second.
MOST_ROWS = 600
STEP_S = 1.0
#: A tick that comes a little early still makes its row.
_EARLY = 0.9
_DIGITS = 4

#: resource → what of it → how much, in the resource's unit; None: there is no such thing, or nobody knows.
Resources = Mapping[str, Mapping[str, float | str | None]]
#: What of each resource is kept over time; its capacity changes only with the configuration.
KEPT = ("promised", "used", "slack")


class History:
    """The last ``most_rows`` rows, at most one per ``step_s`` seconds."""

    def __init__(self, most_rows: int = MOST_ROWS, step_s: float = STEP_S) -> None:
        self._step_s = step_s
        self._columns: tuple[tuple[str, str], ...] = ()
        self._rows: deque[tuple[float, ...]] = deque(maxlen=most_rows)

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, resources: Resources, at: float) -> None:
        """A row, if the last one is old enough. ``at`` is Unix time; a clock that was set back begins anew.

        Other columns than before begin anew, too: a resource that became known.
        """
        at = round(at, 3)
        columns = tuple(
            (resource, what) for resource, amounts in resources.items() for what in KEPT if amounts[what] is not None
        )
        if columns != self._columns or (self._rows and at < self._rows[-1][0]):
            self._columns = columns
            self._rows.clear()
        if self._rows and at - self._rows[-1][0] < _EARLY * self._step_s:
            return
        self._rows.append((at, *(round(_number(resources[r][what]), _DIGITS) for r, what in columns)))

    def since(self, at: float = 0.0) -> dict[str, object]:
        """The rows after ``at`` by columns: ``at``, and resource → what → values, each as long as ``at``."""
        if not self._rows or self._rows[-1][0] <= at:
            return {"at": [], "resources": {}}
        rows = list(dropwhile(lambda row: row[0] <= at, self._rows)) if at else list(self._rows)
        times, *values = zip(*rows, strict=True)
        resources: dict[str, dict[str, tuple[float, ...]]] = {}
        for (resource, what), column in zip(self._columns, values, strict=True):
            resources.setdefault(resource, {})[what] = column
        return {"at": times, "resources": resources}

    @property
    def latest(self) -> float:
        """Unix time of the last row; 0: there is none."""
        return self._rows[-1][0] if self._rows else 0.0


def _number(amount: float | str | None) -> float:
    assert isinstance(amount, int | float)
    return float(amount)
