"""Progress for people: a bar that redraws itself on a terminal, a line per quarter elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 32
_REDRAW_S = 0.1


class Progress:
    """One phase after the other; ``update`` with fractions between 0 and 1."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._terminal = self._stream.isatty()
        self._name = ""
        self._began = 0.0
        self._shown = -1.0
        self._drawn = 0.0

    def phase(self, name: str) -> None:
        """Begin a phase."""
        self._name, self._began, self._shown = name, time.monotonic(), -1.0
        self.update(0.0)

    def update(self, fraction: float) -> None:
        """So much of the phase is done."""
        now = time.monotonic()
        if self._terminal:
            if fraction < 1 and now - self._drawn < _REDRAW_S:
                return
            filled = int(fraction * _WIDTH)
            self._drawn = now
            bar = "█" * filled + "·" * (_WIDTH - filled)
            self._write(f"\r{self._name:<44} {bar} {fraction:4.0%} {now - self._began:5.1f} s\033[K")
        elif fraction - self._shown >= 0.25 or self._shown < 0:
            self._shown = fraction
            self._write(f"{self._name}: {fraction:.0%} after {now - self._began:.1f} s\n")

    def done(self) -> None:
        """End the phase."""
        self.update(1.0)
        if self._terminal:
            self._write("\n")

    def line(self, text: str) -> None:
        """A line between phases."""
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
