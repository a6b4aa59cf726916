"""SIGHUP: a running daemon reads its configuration again and takes from it what it can without a restart."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import structlog

from penstock.declaration import written
from penstock.settings import SettingsError, live_keys

log = structlog.get_logger()
T = TypeVar("T", bound=msgspec.Struct)


class Reloading(Generic[T]):
    """What holds now, and what is asked for. :meth:`listen` early, :meth:`run` for as long as the daemon serves."""

    def __init__(self, current: T, read: Callable[[], T], check: Callable[[T], None] = lambda table: None) -> None:
        """``read`` raises SettingsError, and so does ``check`` where the keys of a table contradict each other."""
        self.current = current
        self._read = read
        self._check = check
        self._asked = asyncio.Event()
        self._had_terminal = _has_terminal()

    def listen(self) -> None:
        """From now on SIGHUP asks for it. That a terminal was closed ends the daemon as it ends any other command."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hung_up)

    async def run(self, apply: Callable[[T], None]) -> None:
        """Until cancelled; ``apply`` gets each new table."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                fresh = self.reload()
                if fresh is not None:
                    apply(fresh)
            except Exception as error:  # the root of a task: the daemon goes on, and can be told again
                log.error("the new configuration could not be taken up", exc_info=error)

    def reload(self) -> T | None:
        """Read it, and say in one line what becomes of it; the table that holds from now on, None: as before."""
        try:
            found = self._read()
            changed = [key for key in found.__struct_fields__ if getattr(found, key) != getattr(self.current, key)]
            live = live_keys(type(found))
            taken = {key: getattr(found, key) for key in changed if key in live}
            fresh = msgspec.structs.replace(self.current, **taken)
            self._check(fresh)
        except SettingsError as error:
            log.error("configuration not reloaded: the old one stands", why="; ".join(error.faults))
            return None
        before, self.current = self.current, fresh
        log.info(
            "configuration reloaded",
            changed={key: _change(key, before, found) for key in taken},
            restart_needed={key: _change(key, before, found) for key in changed if key not in live},
        )
        return fresh if taken else None

    def _hung_up(self) -> None:
        if self._had_terminal and not _has_terminal():
            signal.raise_signal(signal.SIGTERM)
        else:
            self._asked.set()


def _change(key: str, before: msgspec.Struct, after: msgspec.Struct) -> str:
    return f"{written(key, getattr(before, key))} → {written(key, getattr(after, key))}"


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal; one that was closed is none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
