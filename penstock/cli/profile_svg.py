"""A run and its forecast as an SVG picture: one panel for each resource."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from penstock.cli.plain_text import duration
from penstock.cli.profile_view import amount, label, series_of
from penstock.cli.profiles import Application, Forecast, Run, measured

_WIDTH, _PANEL, _GAP, _LEFT, _TOP, _RIGHT = 860, 120, 46, 96, 76, 24
_USED, _EXPECTED, _INK, _FAINT = "#2b6cb0", "#c05621", "#1a202c", "#cbd5e0"


def picture(application: Application, run: Run, forecast: Forecast | None, of: str) -> str:
    """Return an SVG document; ``of``: mean or peak of each slot. The forecast's band is that of the mean."""
    used = series_of(run, of)
    predicted = series_of(forecast, of) if forecast is not None else None
    expected_slots = forecast.duration_slots if forecast is not None else 0.0
    slots = max(run.duration_slots, expected_slots)
    height = _TOP + len(application.resources) * (_PANEL + _GAP)
    title = f"{application.application} of {application.user}, run {run.run} ({of} of each slot)"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="26" font-size="15" font-weight="bold">{escape(title)}</text>',
        *_legend(forecast, banded=of == "mean"),
    ]
    for index, name in enumerate(application.resources):
        y = _TOP + index * (_PANEL + _GAP)
        band = (forecast.low, forecast.high) if forecast is not None and of == "mean" else ([], [])
        low, high = (band[0][index], band[1][index]) if band[0] and band[1] else ([], [])
        expected = predicted[index] if predicted is not None else []
        top = max(measured([*used[index], *expected, *high]), default=0.0)
        panel = _Panel(y, slots, top, measured=bool(measured(used[index])))
        parts += panel.frame(name, run.stages, application.slot_s)
        if high:
            parts += panel.band(low, high, expected_slots)
        parts += panel.area(used[index], run.duration_slots)
        if expected:
            parts += panel.line(expected, expected_slots)
    return "\n".join([*parts, "</svg>", ""])


def _legend(forecast: Forecast | None, *, banded: bool) -> list[str]:
    marks = [(f'fill="{_USED}" fill-opacity="0.35"', "used")]
    if forecast is not None:
        marks.append((f'fill="{_EXPECTED}"', f"expected by {forecast.by}"))
        if banded and forecast.low:
            marks.append((f'fill="{_EXPECTED}" fill-opacity="0.18"', "band of the forecast"))
    parts, x = [], _LEFT
    for fill, text in marks:
        parts.append(f'<rect x="{x}" y="40" width="14" height="10" {fill}/>')
        parts.append(f'<text x="{x + 20}" y="49">{escape(text)}</text>')
        x += 44 + 7 * len(text)
    return parts


class _Panel:
    """A panel for one resource over time: ``slots`` wide, from 0 to ``top``."""

    def __init__(self, y: float, slots: float, top: float, *, measured: bool) -> None:
        self._y, self._slots, self._top = y, slots, top or 1.0
        self._highest = top
        self._measured = measured

    def frame(self, name: str, stages: Sequence[int], slot_s: float) -> list[str]:
        """Return the axes, their labels, and marks at the ends of the run's stages."""
        left, right, bottom = _LEFT, _WIDTH - _RIGHT, self._y + _PANEL
        end = duration(self._slots * slot_s)
        highest = amount(name, self._top) if self._highest else "none" if self._measured else "–"
        title = label(name) if self._measured else f"{label(name)}: not measured"
        parts = [f'<line x1="{left}" y1="{at}" x2="{right}" y2="{at}" stroke="{_FAINT}"/>' for at in (self._y, bottom)]
        parts += [
            f'<line x1="{self._x(stage):.1f}" y1="{self._y}" x2="{self._x(stage):.1f}" y2="{bottom}" '
            f'stroke="{_FAINT}" stroke-dasharray="3 3"/>'
            for stage in (min(end, self._slots) for end in stages)
        ]
        return [
            *parts,
            f'<text x="{left}" y="{self._y - 6}" font-weight="bold">{escape(title)}</text>',
            f'<text x="{left - 8}" y="{self._y + 4}" text-anchor="end">{escape(highest)}</text>',
            f'<text x="{left - 8}" y="{bottom + 4}" text-anchor="end">0</text>',
            f'<text x="{left}" y="{bottom + 16}">0</text>',
            f'<text x="{right}" y="{bottom + 16}" text-anchor="end">{escape(end)}</text>',
        ]

    def band(self, low: Sequence[float], high: Sequence[float], slots: float) -> list[str]:
        """Return the areas in which the mean was predicted to lie."""
        known = [a + b for a, b in zip(low, high, strict=True)]
        return [
            f'<polygon points="{" ".join([*self._steps(high, at, slots), *reversed(self._steps(low, at, slots))])}" '
            f'fill="{_EXPECTED}" fill-opacity="0.18"/>'
            for at in _stretches(known)
        ]

    def area(self, values: Sequence[float], slots: float) -> list[str]:
        """Return the areas of the measured use, one for each stretch without a gap."""
        areas = []
        for at in _stretches(values):
            ground = [f"{self._x(end):.1f},{self._y + _PANEL}" for end in (min(at.stop, slots), at.start)]
            points = " ".join([*self._steps(values, at, slots), *ground])
            areas.append(f'<polygon points="{points}" fill="{_USED}" fill-opacity="0.35" stroke="{_USED}"/>')
        return areas

    def line(self, values: Sequence[float], slots: float) -> list[str]:
        """Return the lines of the forecast."""
        return [
            f'<polyline points="{" ".join(self._steps(values, at, slots))}" fill="none" '
            f'stroke="{_EXPECTED}" stroke-width="2"/>'
            for at in _stretches(values)
        ]

    def _x(self, slot: float) -> float:
        return _LEFT + (_WIDTH - _RIGHT - _LEFT) * slot / self._slots

    def _steps(self, values: Sequence[float], at: range, slots: float) -> list[str]:
        """Return the points of a step line; a series of ``slots`` ends within its last slot."""
        points = []
        for slot in at:
            y = self._y + _PANEL * (1 - values[slot] / self._top)
            points += [f"{self._x(slot):.1f},{y:.1f}", f"{self._x(min(slot + 1, slots)):.1f},{y:.1f}"]
        return points


def _stretches(values: Sequence[float]) -> Iterator[range]:
    """Yield each run of measured slots."""
    start = 0
    for slot in range(len(values) + 1):
        if slot == len(values) or math.isnan(values[slot]):
            if slot > start:
                yield range(start, slot)
            start = slot + 1
