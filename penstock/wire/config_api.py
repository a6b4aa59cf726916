"""Configuration of running daemons: operators' requests to their host's agent, about itself or about the master."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from penstock.wire.agent_api import Params, Result

Daemon = Literal["agent", "master"]
#: Keys and values as in a configuration file, the value as written after ``KEY=`` (``"0.8"``, ``"250ms"``, ``"[1,
#: 2]"``).
Values = dict[Annotated[str, msgspec.Meta(max_length=128)], Annotated[str, msgspec.Meta(max_length=65536)]]


class SetConfig(Params, frozen=True):
    """Change keys of the running daemon, all of them or none, until it reads its configuration again (SIGHUP) or
    restarts. ``bad_request`` lists every error. Operators only."""

    values: Annotated[Values, msgspec.Meta(min_length=1, max_length=1024)]
    daemon: Daemon = "agent"


class ChangedKey(Result, frozen=True):
    """The old and the new value, as written in the file. ``stronger`` is the environment variable or option that
    overrides the file, so that the file's value has no effect."""

    key: str
    was: str
    now: str
    stronger: str = ""


class ConfigSet(Result, frozen=True):
    """``host`` is the daemon's host, ``file`` its configuration file there; empty: none."""

    changed: list[ChangedKey]
    host: str
    file: str = ""


class ShowConfig(Params, frozen=True):
    """Return the configuration in force. Operators only: addresses of databases may contain passwords."""

    daemon: Daemon = "agent"


class KeyInForce(Result, frozen=True):
    """A key's ``value``, also as ``written`` in a file. ``source`` is ``default``, ``file``, ``environment``, ``--set``
    or ``set`` (at run time); ``where`` is the exact place. ``after_restart``: the value after a restart, if another."""

    value: Any
    written: str
    source: str
    where: str
    default: str
    live: bool
    description: str
    after_restart: str = ""


class ConfigInForce(Result, frozen=True):
    """All keys in the order of their declaration; ``host`` and ``file`` as in ``set_config``."""

    keys: dict[str, KeyInForce]
    host: str
    file: str = ""
