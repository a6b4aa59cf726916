"""A paper's claims and their results here: the lines of ``docs/benchmarks/results.md``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the page. ``why`` is one sentence on the difference, required if ``holds`` is False."""

    what: str
    paper: str
    ours: str
    holds: bool
    why: str = ""

    def __post_init__(self) -> None:
        if not self.holds and not self.why:
            raise ValueError(f"{self.what!r} does not hold and does not say why")


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """The input of claims. ``traces`` is a folder with the public traces; None: there is none."""

    traces: Path | None = None

    def trace(self, name: str) -> Path:
        """Return the file of the trace ``name`` (a key of :data:`TRACES`). Raises LookupError if there is none."""
        path = None if self.traces is None else self.traces / TRACES[name]
        if path is None or not path.is_file():
            raise LookupError(
                f"the trace {name!r} ({TRACES[name]}) is not in the folder of traces; give it with --traces"
            )
        return path


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, a table or a sentence of a paper, and the function that tries it.

    ``name`` is ``paper/claim``, ``where`` is the place in the paper, ``needs`` is the required trace (a key of
    :data:`TRACES`; "" for none).
    """

    name: str
    where: str
    run: Callable[[Inputs], list[Row]]
    needs: str = ""


#: The public traces: name → file in the folder of traces.
TRACES = {
    "swim": "swim/FB-2010_samples_24_times_1hr_0.tsv",
    "tpch_dags": "tpch_dags/tpch_dags.json",
    "workflows": "workflows/workflows.json",
    "lumos": "lumos/lumos_series.csv",
}
