"""Terminal handling of ``penstock top``: a window that scrolls over a long view, and the keys that control it."""

from __future__ import annotations

import contextlib
import re
import termios
import tty
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from penstock.model.units import counted

#: The bytes that keys send: escape sequences first, then single characters.
_KEY = re.compile(rb"\x1b(?:\[|O)[0-9;]*[A-Za-z~]|.", re.DOTALL)
_NAMES = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"k": "up", b"\x1b[B": "down", b"\x1bOB": "down", b"j": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b" ": "page down", b"\x1b[H": "home", b"\x1b[1~": "home",
    b"g": "home", b"\x1b[F": "end", b"\x1b[4~": "end", b"G": "end", b"\t": "other", b"\x1b[C": "other",
    b"\x1b[D": "other", b"\x1b[Z": "other", b"h": "host", b"c": "cluster", b"q": "quit", b"Q": "quit", b"\x03": "quit",
}  # fmt: skip
_EDGE = 10**9


def keys(data: bytes) -> Iterator[str]:
    """Yield the names of the pressed keys; unknown keys are skipped."""
    for found in _KEY.finditer(data):
        if name := _NAMES.get(found[0]):
            yield name


@dataclass(slots=True)
class Window:
    """The visible part of a view. ``cluster`` selects the cluster's tab."""

    cluster: bool = False
    top: int = 0  # the first visible line
    height: int = 1  # the number of visible lines, as last drawn

    def press(self, key: str) -> bool:
        """Handle a key; return False to leave."""
        page = max(1, self.height - 1)
        steps = {"up": -1, "down": 1, "page up": -page, "page down": page, "home": -_EDGE, "end": _EDGE}
        if key in steps:
            self.top = max(0, self.top + steps[key])
        elif key in {"host", "cluster", "other"}:
            wanted = not self.cluster if key == "other" else key == "cluster"
            self.top = 0 if wanted != self.cluster else self.top
            self.cluster = wanted
        return key != "quit"


class Framed:
    """A view in a window, with a status line about the keys; exactly as high as the terminal."""

    def __init__(self, view: RenderableType, window: Window, says: str) -> None:
        self._view = view
        self._window = window
        self._says = says

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich; scrolls the window back if the view has become shorter."""
        window = self._window
        lines = console.render_lines(self._view, options.update(height=None), pad=False)
        window.height = max(1, console.size.height - 1)
        window.top = max(0, min(window.top, len(lines) - window.height))
        seen = lines[window.top : window.top + window.height]
        for line in seen + [[]] * (window.height - len(seen)):
            yield from line
            yield Segment.line()
        below = len(lines) - window.top - len(seen)
        more = f"  {counted(below, 'more line')} below" if below > 0 else ""
        yield Text(f"{self._says}{more}", style="reverse", no_wrap=True, overflow="ellipsis", end="")


@contextlib.contextmanager
def pressed_keys(descriptor: int) -> Iterator[None]:
    """Make the terminal pass each key at once, without echo; restore it afterwards."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        now = termios.tcgetattr(descriptor)
        now[6][termios.VSUSP] = b"\0"  # disables Ctrl-Z, which would leave the alternate screen to the shell
        termios.tcsetattr(descriptor, termios.TCSADRAIN, now)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
