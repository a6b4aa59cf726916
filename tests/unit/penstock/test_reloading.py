"""SIGHUP: what is taken, what needs a restart, what a wrong file leaves as it was."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Annotated

import msgspec
import pytest
import structlog

from penstock.reloading import Reloading
from penstock.settings import LIVE, SettingsError


class Table(msgspec.Struct, frozen=True, kw_only=True):
    wait_s: Annotated[float, LIVE] = 1.0
    share: Annotated[float, LIVE] = 0.5
    listen: str = "here"


class Bed:
    """A file that says something else each time it is read."""

    def __init__(self) -> None:
        self.said: Table | SettingsError = Table()
        self.reloading = Reloading(Table(), self.read, check)

    def read(self) -> Table:
        if isinstance(self.said, SettingsError):
            raise self.said
        return self.said

    def reload(self, said: Table | SettingsError) -> tuple[Table | None, dict[str, object]]:
        """What is taken, and the one line of the log."""
        self.said = said
        with structlog.testing.capture_logs() as lines:
            fresh = self.reloading.reload()
        [line] = lines
        return fresh, dict(line)


def check(table: Table) -> None:
    if table.share > table.wait_s:
        raise SettingsError(f"share: {table.share:g} is above wait_s ({table.wait_s:g})")


def test_live_keys_are_taken_and_the_others_are_named() -> None:
    bed = Bed()
    fresh, line = bed.reload(Table(wait_s=2.0, listen="there"))
    assert fresh == bed.reloading.current == Table(wait_s=2.0)
    assert line == {
        "event": "configuration reloaded",
        "changed": {"wait_s": '"1s" → "2s"'},
        "restart_needed": {"listen": '"here" → "there"'},
        "log_level": "info",
    }


def test_what_needs_a_restart_is_named_until_there_was_one() -> None:
    bed = Bed()
    assert bed.reload(Table(listen="there"))[0] is None
    fresh, line = bed.reload(Table(listen="there"))
    assert fresh is None and line["restart_needed"] == {"listen": '"here" → "there"'}
    assert bed.reload(Table())[1] == {
        "event": "configuration reloaded", "changed": {}, "restart_needed": {}, "log_level": "info"
    }  # fmt: skip


def test_a_wrong_file_leaves_everything_and_says_why() -> None:
    bed = Bed()
    bed.reload(Table(share=0.25))
    fresh, line = bed.reload(SettingsError("x.toml:3: unknown key 'wait'", "x.toml:4: share: Expected `float`"))
    assert fresh is None and bed.reloading.current == Table(share=0.25)
    assert line["event"] == "configuration not reloaded: the old one stands"
    assert line["why"] == "x.toml:3: unknown key 'wait'; x.toml:4: share: Expected `float`"


def test_keys_that_contradict_what_stands_are_not_taken() -> None:
    bed = Bed()
    fresh, line = bed.reload(Table(wait_s=0.1))
    assert fresh is None and bed.reloading.current == Table()
    assert line["why"] == "share: 0.5 is above wait_s (0.1)"


async def test_sighup_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    taken: asyncio.Queue[Table] = asyncio.Queue()
    bed.reloading.listen()
    running = asyncio.create_task(bed.reloading.run(taken.put_nowait))
    try:
        for wait_s in (2.0, 3.0):
            bed.said = Table(wait_s=wait_s)
            os.kill(os.getpid(), signal.SIGHUP)
            assert await asyncio.wait_for(taken.get(), 30) == bed.said
    finally:
        running.cancel()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


async def test_a_terminal_that_is_closed_ends_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False])
    monkeypatch.setattr("penstock.reloading._has_terminal", lambda: next(answers))
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    bed = Bed()
    bed.reloading.listen()
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(ended.wait(), 30)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        loop.remove_signal_handler(signal.SIGTERM)
