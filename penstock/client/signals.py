"""Signals for commands that block: a signal ends the wait, after which the command handles it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # signal itself makes enumerations of all signals, as socket does

_READ_BYTES = 4096


class Signals:
    """Collects the signals ``numbers`` in ``received`` while it is entered.

    The next wait of a :class:`penstock.client.session.Session` calls ``act``, so that a signal is never handled in the
    middle of another operation. A signal for which ``interrupts`` is true raises KeyboardInterrupt at once.
    """

    def __init__(
        self,
        numbers: Iterable[int],
        act: Callable[[], None],
        interrupts: Callable[[int], bool] = lambda number: False,
    ) -> None:
        self.received: list[int] = []
        self._numbers = tuple(numbers)
        self._act = act
        self._interrupts = interrupts
        self._wake = self._wakes = -1  # a pipe: its end to read from, and the other one
        self._before: dict[int, Any] = {}
        self._woken_before: int | None = None

    def __enter__(self) -> Self:
        self._wake, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._catch()
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before or signal.SIG_DFL)
        if self._woken_before is not None:
            signal.set_wakeup_fd(self._woken_before)
        os.close(self._wake)
        os.close(self._wakes)

    def _catch(self) -> None:
        for number in self._numbers:
            self._before[number] = signal.signal(number, self._on_signal)
        self._woken_before = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a signal has arrived."""
        return self._wake

    def noticed(self) -> None:
        """Empty the descriptor and call ``act``."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, _READ_BYTES)
        self._act()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if self._interrupts(number):
            raise KeyboardInterrupt
