"""The history of resources over the last minutes, in a ring of fixed size. It reads neither a clock nor a file."""

from __future__ import annotations

from collections import deque
from itertools import dropwhile

from penstock.documents import Resources

#: Ten minutes at one row per second.
_MOST_ROWS = 600
_DIGITS = 4

#: The quantities that are kept over time; capacity is left out, as it changes only with the configuration.
_KEPT = ("promised", "used", "slack")


class History:
    """The last ``most_rows`` rows."""

    def __init__(self, most_rows: int = _MOST_ROWS) -> None:
        self._columns: tuple[tuple[str, str], ...] = ()
        self._rows: deque[tuple[float, ...]] = deque(maxlen=most_rows)

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, resources: Resources, at: float) -> None:
        """Add a row. ``at`` is Unix time.

        The history starts anew if the clock was set back, or if the columns changed because a resource became known.
        """
        at = round(at, 3)
        kept = [(name, what, getattr(amounts, what)) for name, amounts in resources.items() for what in _KEPT]
        known = [each for each in kept if each[2] is not None]
        columns = tuple((name, what) for name, what, _ in known)
        if columns != self._columns or (self._rows and at < self._rows[-1][0]):
            self._columns = columns
            self._rows.clear()
        self._rows.append((at, *(round(float(amount), _DIGITS) for *_, amount in known)))

    def since(self, at: float = 0.0) -> dict[str, object]:
        """Return the rows after ``at`` as columns: ``at``, and resource → quantity → values, each as long as ``at``."""
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
        """Return the Unix time of the last row; 0: there is none."""
        return self._rows[-1][0] if self._rows else 0.0
