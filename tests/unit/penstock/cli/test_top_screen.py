"""The window of `penstock top`: keys, scrolling, exactly one screen; and its requests to the agent."""

from __future__ import annotations

import io
import os
import pty
import termios
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from penstock.cli.screen import Framed, Window, keys, pressed_keys
from penstock.cli.top import _Source
from penstock.wire.errors import RpcError, refused, unavailable


def screen(lines: int, window: Window, height: int = 10, width: int = 40) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    view = Text("\n".join(f"line {n}" for n in range(lines)))
    console.print(Framed(view, window, " q quit "), end="")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().split("\n")


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"q", ["quit"]),
        (b"\x1b[A\x1b[B\x1bOB", ["up", "down", "down"]),
        (b"\x1b[5~\x1b[6~ ", ["page up", "page down", "page down"]),
        (b"gG\x1b[H\x1b[F", ["home", "end", "home", "end"]),
        (b"\t\x1b[Ch\x1b[Zc", ["other", "other", "host", "other", "cluster"]),
        (b"x\x1b[24~\xff\x00\x1b", []),
    ],
)
def test_the_meaning_of_keys(data: bytes, names: list[str]) -> None:
    assert list(keys(data)) == names


@given(st.binary(max_size=50))
def test_no_key_is_too_strange(data: bytes) -> None:
    assert set(keys(data)) <= {"quit", "up", "down", "page up", "page down", "home", "end", "other", "host", "cluster"}


def test_a_short_view_fills_the_screen_and_does_not_move() -> None:
    window = Window()
    for key in ("down", "end", "page down"):
        window.press(key)
        seen = screen(3, window)
        assert [line.rstrip() for line in seen] == ["line 0", "line 1", "line 2", *[""] * 6, " q quit"]


def test_a_long_view_moves_as_far_as_it_goes() -> None:
    window = Window()
    assert screen(30, window)[0].strip() == "line 0"
    seen = {}
    for key in ("down", "page down", "end", "down", "up", "page up", "home", "up"):
        window.press(key)
        lines = [line.strip() for line in screen(30, window)]
        seen[key] = (lines[0], lines[8], lines[9])
    assert seen["page down"][0] == "line 9"
    assert seen["end"] == ("line 21", "line 29", "q quit")
    assert seen["page up"][0] == "line 12"
    assert seen["home"] == ("line 0", "line 8", "q quit   21 more lines below")
    assert (seen["down"][0], seen["up"][0]) == ("line 21", "line 0")


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["up", "down", "page up", "page down", "home", "end", "other"])), st.integers(0, 60))
def test_every_screen_is_exactly_one_and_shows_a_part_without_gaps(pressed: list[str], lines: int) -> None:
    window = Window()
    for key in pressed:
        assert window.press(key)
        seen = [line.strip() for line in screen(lines, window)]
        assert len(seen) == 10
        shown = [line for line in seen[:9] if line]
        assert shown == [f"line {n}" for n in range(window.top, window.top + min(9, lines))]


def test_the_tabs() -> None:
    window = Window(top=5)
    assert window.press("host")
    assert (window.cluster, window.top) == (False, 5)
    assert window.press("other")
    assert (window.cluster, window.top) == (True, 0)
    assert window.press("cluster")
    assert window.cluster
    assert not window.press("quit")


def test_the_terminal_is_given_back_as_it_was() -> None:
    parent, child = pty.openpty()
    try:
        before = termios.tcgetattr(child)
        with pytest.raises(ZeroDivisionError), pressed_keys(child):
            during = termios.tcgetattr(child)
            raise ZeroDivisionError
        assert before[3] & termios.ICANON
        assert not during[3] & termios.ICANON
        assert not during[3] & termios.ECHO
        assert termios.tcgetattr(child) == before
    finally:
        os.close(parent)
        os.close(child)


class Agent:
    """The part of an agent that top uses. ``refuses``: its answer to a call."""

    def __init__(self, **refuses: RpcError) -> None:
        self.asked: list[str] = []
        self._refuses = refuses

    async def cluster_status(self) -> dict[str, Any]:
        self.asked.append("cluster_status")
        return {"nodes": {"alpha": {"state": "connected"}}}

    async def reservations(self, *, everybody: bool) -> list[Any]:
        call = "everybody" if everybody else "own"
        self.asked.append(call)
        if call in self._refuses:
            raise self._refuses[call]
        return []


@pytest.mark.parametrize(
    ("refuses", "asked"),
    [
        ({}, ["everybody"]),
        ({"everybody": refused("only for operators")}, ["everybody", "own"]),
        ({"everybody": unavailable("no store")}, ["everybody"]),
        ({"everybody": refused("only for operators"), "own": unavailable("away")}, ["everybody", "own"]),
    ],
)
async def test_reservations_are_asked_for_as_far_as_one_may_and_not_at_each_look(
    refuses: dict[str, RpcError], asked: list[str]
) -> None:
    agent = Agent(**refuses)
    source = _Source(agent)  # type: ignore[arg-type]
    for _ in range(3):
        assert await source.view(cluster=True)
    assert agent.asked == ["cluster_status", *asked, "cluster_status", "cluster_status"]
