"""Format rows and figures in the same way for every claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from research.papers.claims import Row


def row(*, what: str, paper: str, ours: str, holds: bool, why: str) -> Row:
    """Return a row; ``why`` is kept only if the claim does not hold."""
    return Row(what=what, paper=paper, ours=ours, holds=holds, why="" if holds else why)


def close(what: str, paper: float, ours: float, *, within: float, say: Callable[[float], str], why: str) -> Row:
    """Return a row that holds within a fraction of the paper's figure, to either side; ``say`` formats both figures."""
    holds = abs(ours - paper) <= within * abs(paper)
    return row(what=f"{what} (± {within * 100:g} %)", paper=say(paper), ours=say(ours), holds=holds, why=why)


def seconds(time_s: float) -> str:
    """Return seconds with three significant digits."""
    return f"{time_s:.0f} s" if abs(time_s) >= 100 else f"{time_s:.3g} s"


def percent(fraction: float) -> str:
    """Return a fraction as percent with one decimal."""
    return f"{100 * fraction:.1f} %".replace("-", "−")


def change(ours: float, base: float) -> str:
    """Return the relative difference from the base in percent, with its sign."""
    return f"{100 * (ours / base - 1):+.1f} %".replace("-", "−")


def listed(values: Iterable[float], say: Callable[[float], str]) -> str:
    """Return the formatted values, separated by commas."""
    return ", ".join(map(say, values))
