"""Change a running daemon's configuration: SIGHUP reads it again, operators set keys.

A key set by an operator holds until the configuration is read again, or the daemon restarts.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import structlog

from penstock.config.declaration import written
from penstock.config.settings import Loaded, Origin, SettingsError, given, live_keys
from penstock.documents import SetByHand
from penstock.wire.config_api import ChangedKey

log = structlog.get_logger()
T = TypeVar("T", bound=msgspec.Struct)
#: Sources that take precedence over the file at every read.
_STRONGER = frozenset({"environment", "--set"})


@dataclass(slots=True)
class LiveConfig(Generic[T]):
    """The configuration in force and its changes. Call :meth:`listen` early and :meth:`run` while the daemon serves.

    ``read`` raises SettingsError, and so does ``check`` if keys of a table contradict each other. ``file`` is the
    configuration file. ``apply`` is called with each new table, the functions of ``also`` at each SIGHUP.
    """

    loaded: Loaded[T]
    read: Callable[[], Loaded[T]]
    check: Callable[[T], None] = lambda table: None
    file: Path | None = None
    apply: Callable[[T], None] = lambda table: None
    also: list[Callable[[], None]] = field(default_factory=list)
    _found: Loaded[T] = field(init=False)
    _asked: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _had_terminal: bool = field(init=False)

    def __post_init__(self) -> None:
        self._found = self.loaded
        self._had_terminal = _has_terminal()

    @property
    def current(self) -> T:
        """Return the table in force."""
        return self.loaded.table

    def listen(self) -> None:
        """Reload on SIGHUP from now on. If the SIGHUP comes from a closed terminal, the daemon ends as any command."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hung_up)

    async def run(self) -> None:
        """Reload after each SIGHUP, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            for each in (self.reload, *self.also):
                try:
                    each()
                except Exception as error:  # the root of a task: the daemon goes on, and another SIGHUP is possible
                    log.error("the new configuration could not be taken up", exc_info=error)

    def reload(self) -> T | None:
        """Read the configuration and log the result in one line; return the new table, None: nothing changed."""
        try:
            found = self.read()
            changed = self._differs(found.table)
            live = live_keys(type(found.table))
            taken = {key: getattr(found.table, key) for key in changed if key in live}
            fresh = msgspec.structs.replace(self.current, **taken)
            self.check(fresh)
        except SettingsError as error:
            log.error("configuration not reloaded: the old one stands", why="; ".join(error.faults))
            return None
        before, stands = self.loaded, [key for key in changed if key not in live]
        kept = {key: before.origins[key] for key in stands if key in before.origins}
        read = {key: origin for key, origin in found.origins.items() if key not in stands}
        self.loaded, self._found = Loaded(fresh, read | kept), found
        log.info(
            "configuration reloaded",
            changed={key: _change(key, before.table, fresh) for key in taken},
            restart_needed={key: _change(key, before.table, found.table) for key in stands},
        )
        if not taken:
            return None
        self.apply(fresh)
        return fresh

    def set(self, values: Mapping[str, str], who: str, when: str) -> list[ChangedKey]:
        """Change live keys, all or none; ``values`` have the form of ``--set``.

        Raises:
            SettingsError: all faults: unknown keys, keys that need a restart, values that do not fit.
        """
        of, taken, faults = type(self.current), {}, list[str]()
        for key, text in values.items():
            try:
                taken[key] = given(of, key, text)
            except SettingsError as error:
                faults += error.faults
                continue
            if key not in live_keys(of):
                place = self.file or "its file"
                faults.append(f"{key}: cannot change while the daemon runs; write it into {place} and restart")
        if faults:
            raise SettingsError(*faults)
        before, fresh = self.loaded, msgspec.structs.replace(self.current, **taken)
        self.check(fresh)
        by = dict.fromkeys(taken, Origin("set", f"set by {who} at {when}"))
        self.loaded = Loaded(fresh, {**before.origins, **by})
        log.info("configuration set", by=who, changed={key: _change(key, before.table, fresh) for key in taken})
        self.apply(fresh)
        stronger = {key: origin.where for key, origin in self._found.origins.items() if origin.source in _STRONGER}
        return [
            ChangedKey(
                key=key,
                was=written(key, getattr(before.table, key)),
                now=written(key, value),
                stronger=stronger.get(key, ""),
            )
            for key, value in taken.items()
        ]

    def after_restart(self) -> dict[str, str]:
        """Return the changes by a restart, according to the last read: key → value in the form of a file."""
        return {key: written(key, getattr(self._found.table, key)) for key in self._differs(self._found.table)}

    def by_hand(self) -> dict[str, SetByHand]:
        """Return the keys set by operators, for the status: key → value in the form of a file, and its origin."""
        return {
            key: SetByHand(value=written(key, getattr(self.current, key)), where=origin.where)
            for key, origin in self.loaded.origins.items()
            if origin.source == "set"
        }

    def _differs(self, table: T) -> list[str]:
        return [key for key in table.__struct_fields__ if getattr(table, key) != getattr(self.current, key)]

    def _hung_up(self) -> None:
        if self._had_terminal and not _has_terminal():
            signal.raise_signal(signal.SIGTERM)
        else:
            self._asked.set()


def _change(key: str, before: msgspec.Struct, after: msgspec.Struct) -> str:
    return f"{written(key, getattr(before, key))} → {written(key, getattr(after, key))}"


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal that is not closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
