"""How rows and figures are said, the same way in every claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from simulator.paper.claims import Row


def row(*, what: str, paper: str, ours: str, holds: bool, why: str) -> Row:
    """``why`` is said where it is needed."""
    return Row(what=what, paper=paper, ours=ours, holds=holds, why="" if holds else why)


def close(what: str, paper: float, ours: float, *, within: float, say: Callable[[float], str], why: str) -> Row:
    """A figure that holds within a fraction of the paper's, to either side; ``say`` writes both."""
    holds = abs(ours - paper) <= within * abs(paper)
    return row(what=f"{what} (± {within * 100:g} %)", paper=say(paper), ours=say(ours), holds=holds, why=why)


def seconds(time_s: float) -> str:
    """Three digits that count."""
    return f"{time_s:.0f} s" if abs(time_s) >= 100 else f"{time_s:.3g} s"


def percent(fraction: float) -> str:
    """With one decimal."""
    return f"{100 * fraction:.1f} %".replace("-", "−")


def change(ours: float, base: float) -> str:
    """By how much it differs from the base."""
    return f"{100 * (ours / base - 1):+.1f} %".replace("-", "−")


def listed(values: Iterable[float], say: Callable[[float], str]) -> str:
    """One after the other."""
    return ", ".join(map(say, values))
