"""Write ``docs/benchmarks/results.md``: the papers' figures and ours, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from research.papers.catalogue import PAPERS
from research.papers.trial import Trial

_HEAD = """\
# The papers' claims, and our results

`python -m research` writes this page; run it again instead of editing. It reads public traces that are no part of
Penstock: `python -m research --traces DIR`. The scenarios are files in `research/scenarios` and `simulator/scenarios`;
`penstock simulate FILE` runs one of them. [simulate.md](../simulate.md) describes the models and their limits.
"""


def page(trials: Sequence[Trial]) -> str:
    """Return the whole page. The same trials give the same text, as durations are left out."""
    rows = [row for trial in trials for row in trial.rows]
    hold = sum(row.holds for row in rows)
    parts = [_HEAD, f"{hold} of {len(rows)} lines come out as in the paper.\n"]
    for paper, title in PAPERS.items():
        own = [trial for trial in trials if trial.name.partition("/")[0] == paper]
        if own:
            parts.append(f"## {title}\n\n{_table(own)}")
    return "\n".join(parts)


def _table(trials: Sequence[Trial]) -> str:
    lines = ["| claim | figure | the paper | here | holds | the difference |", "|---|---|---|---|---|---|"]
    for trial in trials:
        name = f"`{trial.name}` {trial.where}"
        for row in trial.rows:
            lines.append(_line(name, row.what, row.paper, row.ours, "yes" if row.holds else "**no**", row.why))
            name = ""
        if trial.not_run:
            lines.append(_line(name, "", "", "not run", "", trial.not_run))
        if trial.failed:
            lines.append(_line(name, "", "", "failed", "**no**", trial.failed.strip().splitlines()[-1]))
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
