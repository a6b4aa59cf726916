"""Record which of the project's functions run, in the order of their calls, in all threads of this process."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: The packages whose functions are counted, and the stand-ins below.
_PACKAGES = tuple(f"{ROOT / package}/" for package in ("agent", "master", "penstock", "tests/fakes"))
#: Stand-ins for the kernel: a call into one counts like the system's function that it replaces, its own calls do not.
_STAND_INS = "tests/fakes/"
#: Parts of a function that some versions of Python run as functions of their own.
_PARTS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>")
#: Thread → the process that it would belong to. Others work in the background, like the journal's, or are stand-ins.
_SIDES = {"penstock-gate": "client", "penstock-client": "client", "agent": "agent", "master": "master"}
#: The last two bits of RESUME's argument are 0 at the start of a function and not at the next step of a coroutine.
_STEP = 3


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of the project's functions; ``resumed``: the next step of a coroutine that was called before.

    ``number`` orders the calls of all threads. ``root`` is the number of the call at depth 0 that led to this one.
    """

    number: int
    side: str
    depth: int
    path: str
    function: str
    root: int
    parent: int | None
    resumed: bool = False

    @property
    def name(self) -> str:
        """The function with its file, from the checkout's root."""
        return f"{self.path}:{self.function}"


@dataclass(slots=True)
class _Thread:
    """The calls under way in a thread, outermost first; ``side`` is empty for a thread that is not watched."""

    side: str
    stack: list[tuple[FrameType, Call]] = field(default_factory=list)


class Tracer:
    """A recorder for :func:`sys.setprofile`. Threads that start within :meth:`installed` are watched."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._on = False
        self._calls: list[Call] = []
        self._threads: dict[int, _Thread] = {}
        self._paths: dict[CodeType, str] = {}
        self._changed = threading.Condition()
        self._own = 0  # the thread that uses the client

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch the calling thread, and those that start meanwhile."""
        before, before_threads = sys.getprofile(), threading.getprofile()
        self._own = threading.get_ident()
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(before_threads)

    def start(self) -> None:
        """Begin a record."""
        self._calls = []
        self._threads = {}
        self._on = True

    def stop(self) -> list[Call]:
        """End the record once no call is under way in any thread; return it in the order of the calls."""
        with self._changed:
            idle = self._changed.wait_for(lambda: not any(each.stack for each in self._threads.copy().values()), 60)
        self._on = False
        assert idle, "a call has not returned within a minute"
        return sorted(self._calls, key=lambda call: call.number)

    def mark(self) -> int:
        """Return a number between those of the calls before and after."""
        return next(self._numbers)

    # ------------------------------------------------------------ inside

    def _hook(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._on:
            return
        if event == "call":
            path = self._paths.get(frame.f_code)
            if path is None:
                path = self._paths[frame.f_code] = _path(frame.f_code)
            if path:
                self._called(frame, path)
        elif event == "return":
            thread = self._threads.get(threading.get_ident())
            if thread is not None and thread.stack and thread.stack[-1][0] is frame:
                thread.stack.pop()
                if not thread.stack:
                    with self._changed:
                        self._changed.notify_all()

    def _called(self, frame: FrameType, path: str) -> None:
        ident = threading.get_ident()
        thread = self._threads.get(ident)
        if thread is None:
            side = "client" if ident == self._own else _SIDES.get(threading.current_thread().name, "")
            thread = self._threads[ident] = _Thread(side)
        outer = thread.stack[-1][1] if thread.stack else None
        if not thread.side or (outer is not None and outer.path.startswith(_STAND_INS)):
            return
        code = frame.f_code
        number = next(self._numbers)
        call = Call(
            number=number, side=thread.side, depth=len(thread.stack), path=path, function=_function(code),
            root=outer.root if outer is not None else number, parent=outer.number if outer is not None else None,
            resumed=bool(code.co_code[frame.f_lasti + 1] & _STEP) if frame.f_lasti >= 0 else False,
        )  # fmt: skip
        thread.stack.append((frame, call))
        self._calls.append(call)


def _path(code: CodeType) -> str:
    """Return the file of a function from the checkout's root; empty: it is not counted."""
    if not code.co_filename.startswith(_PACKAGES) or code.co_name in _PARTS:
        return ""
    return code.co_filename[len(str(ROOT)) + 1 :]


def _function(code: CodeType) -> str:
    """Return a function's name within its file; a function inside another one follows the other's name."""
    return code.co_qualname.replace(".<locals>", "")
