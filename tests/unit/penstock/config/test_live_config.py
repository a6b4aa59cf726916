"""SIGHUP: the keys that are applied, those that need a restart, and those that a wrong file leaves unchanged."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Annotated

import msgspec
import pytest
import structlog

from penstock.config.live_config import LiveConfig
from penstock.config.settings import LIVE, Loaded, Origin, SettingsError
from penstock.documents import SetByHand
from penstock.wire.config_api import ChangedKey


class Table(msgspec.Struct, frozen=True, kw_only=True):
    wait_s: Annotated[float, LIVE] = 1.0
    share: Annotated[float, LIVE] = 0.5
    listen: str = "here"


class Bed:
    """A file with other content each time it is read."""

    def __init__(self) -> None:
        self.said: Table | SettingsError = Table()
        self.origins: dict[str, Origin] = {}
        self.applied: list[Table] = []
        self.reloading = LiveConfig(Loaded(Table(), {}), self.read, check, apply=self.applied.append)

    def read(self) -> Loaded[Table]:
        if isinstance(self.said, SettingsError):
            raise self.said
        return Loaded(self.said, self.origins)

    def reload(self, said: Table | SettingsError) -> tuple[Table | None, dict[str, object]]:
        """Return the applied keys, and the one line of the log."""
        self.said = said
        with structlog.testing.capture_logs() as lines:
            fresh = self.reloading.reload()
        [line] = lines
        return fresh, dict(line)


def check(table: Table) -> None:
    if table.share > table.wait_s:
        raise SettingsError(f"share: {table.share:g} is above wait_s ({table.wait_s:g})")


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_live_keys_are_taken_and_the_others_are_named(bed: Bed) -> None:
    fresh, line = bed.reload(Table(wait_s=2.0, listen="there"))
    assert fresh == bed.reloading.current == Table(wait_s=2.0)
    assert bed.applied == [fresh]
    assert line == {
        "event": "configuration reloaded",
        "changed": {"wait_s": '"1s" → "2s"'},
        "restart_needed": {"listen": '"here" → "there"'},
        "log_level": "info",
    }


def test_keys_that_need_a_restart_are_named_until_there_was_one(bed: Bed) -> None:
    assert bed.reload(Table(listen="there"))[0] is None
    fresh, line = bed.reload(Table(listen="there"))
    assert fresh is None and line["restart_needed"] == {"listen": '"here" → "there"'}
    assert bed.reload(Table())[1] == {
        "event": "configuration reloaded", "changed": {}, "restart_needed": {}, "log_level": "info"
    }  # fmt: skip


def test_a_wrong_file_leaves_everything_and_the_reason_is_reported(bed: Bed) -> None:
    bed.reload(Table(share=0.25))
    fresh, line = bed.reload(SettingsError("x.toml:3: unknown key 'wait'", "x.toml:4: share: a number expected"))
    assert fresh is None and bed.reloading.current == Table(share=0.25)
    assert line["event"] == "configuration not reloaded: the old one stands"
    assert line["why"] == "x.toml:3: unknown key 'wait'; x.toml:4: share: a number expected"


def test_keys_that_contradict_the_present_values_are_not_applied(bed: Bed) -> None:
    fresh, line = bed.reload(Table(wait_s=0.1))
    assert fresh is None and bed.reloading.current == Table()
    assert line["why"] == "share: 0.5 is above wait_s (0.1)"


def set_keys(bed: Bed, **values: str) -> list[ChangedKey]:
    return bed.reloading.set(values, "eve", "2026-01-01T00:00:00+00:00")


def test_a_set_value_is_in_force_until_the_file_is_read_again(bed: Bed) -> None:
    bed.origins = {"share": Origin("file", "x.toml:3")}
    bed.reload(Table(share=0.25))
    with structlog.testing.capture_logs() as lines:
        assert set_keys(bed, wait_s="2500ms", share="0.75") == [
            ChangedKey(key="wait_s", was='"1s"', now='"2.5s"'), ChangedKey(key="share", was="0.25", now="0.75")
        ]  # fmt: skip
    assert lines == [
        {
            "event": "configuration set", "by": "eve", "log_level": "info",
            "changed": {"wait_s": '"1s" → "2.5s"', "share": "0.25 → 0.75"},
        }
    ]  # fmt: skip
    assert bed.reloading.current == bed.applied[-1] == Table(wait_s=2.5, share=0.75)
    where = "set by eve at 2026-01-01T00:00:00+00:00"
    assert bed.reloading.loaded.origins["share"] == Origin("set", where)
    assert bed.reloading.by_hand() == {
        "wait_s": SetByHand(value='"2.5s"', where=where), "share": SetByHand(value="0.75", where=where)
    }  # fmt: skip
    assert bed.reloading.after_restart() == {"wait_s": '"1s"', "share": "0.25"}

    fresh, line = bed.reload(Table(share=0.25))
    assert fresh == Table(share=0.25) and line["changed"] == {"wait_s": '"2.5s" → "1s"', "share": "0.75 → 0.25"}
    assert bed.reloading.loaded.origins == {"share": Origin("file", "x.toml:3")} and not bed.reloading.by_hand()


def test_all_keys_are_set_or_none_and_every_fault_is_reported(bed: Bed) -> None:
    with pytest.raises(SettingsError) as caught:
        set_keys(bed, wait_s="0.5", share="lots", listen="there", wait="1s")
    assert caught.value.faults == (
        "share: a number expected, and text found",
        "listen: cannot change while the daemon runs; write it into its file and restart",
        "unknown key 'wait'; did you mean 'wait_s'?",
    )
    with pytest.raises(SettingsError, match=r"share: 0\.9 is above wait_s \(0\.5\)"):
        set_keys(bed, wait_s="0.5", share="0.9")
    assert bed.reloading.current == Table() and not bed.applied and not bed.reloading.by_hand()


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e30", str(2**63)])
def test_a_number_that_no_document_can_show_is_refused(bed: Bed, text: str) -> None:
    with pytest.raises(SettingsError, match=r"^wait_s: a finite number below 2\^63 expected$"):
        set_keys(bed, wait_s=text)
    assert bed.reloading.current == Table() and not bed.applied and not bed.reloading.by_hand()


def test_overrides_of_the_file_are_reported(bed: Bed) -> None:
    bed.origins = {"share": Origin("environment", "$PENSTOCK_X_SHARE"), "wait_s": Origin("file", "x.toml:1")}
    bed.reload(Table())
    for _ in range(2):  # setting it does not hide where it would come from again
        changes = set_keys(bed, share="0.25", wait_s="2")
        assert [change.stronger for change in changes] == ["$PENSTOCK_X_SHARE", ""]


def test_a_key_that_waits_for_a_restart_keeps_its_origin(bed: Bed) -> None:
    bed.origins = {"listen": Origin("file", "x.toml:1"), "share": Origin("file", "x.toml:2")}
    bed.reload(Table(listen="there", share=0.25))
    assert bed.reloading.loaded.origins == {"share": Origin("file", "x.toml:2")}
    assert bed.reloading.after_restart() == {"listen": '"there"'}


async def test_sighup_asks_for_it(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: asyncio.Queue[Table] = asyncio.Queue()
    told: list[str] = []
    bed.reloading.apply = taken.put_nowait
    bed.reloading.also.append(lambda: told.append("also"))
    bed.reloading.listen()
    running = asyncio.create_task(bed.reloading.run())
    try:
        for wait_s in (2.0, 3.0):
            bed.said = Table(wait_s=wait_s)
            os.kill(os.getpid(), signal.SIGHUP)
            assert await asyncio.wait_for(taken.get(), 30) == bed.said
            await asyncio.sleep(0)
        assert told == ["also", "also"]
    finally:
        running.cancel()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


async def test_a_terminal_that_is_closed_ends_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False])
    monkeypatch.setattr("penstock.config.live_config._has_terminal", lambda: next(answers))
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
