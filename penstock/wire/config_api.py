"""Configuration while a daemon runs: what operators ask of their host's agent, about itself or about the master.

What is about the master the agent relays as :class:`penstock.wire.reservation_api.OnBehalf`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from penstock.wire.agent_api import Params, Result

Daemon = Literal["agent", "master"]
#: One of a file: ``KEY`` → what is written after ``KEY=`` (``"0.8"``, ``"250ms"``, ``"[1, 2]"``).
Values = dict[Annotated[str, msgspec.Meta(max_length=128)], Annotated[str, msgspec.Meta(max_length=65536)]]


class SetConfig(Params, frozen=True):
    """Change keys of the running daemon, all of them or none, until it reads its configuration again (SIGHUP) or
    restarts. ``bad_request`` says everything that is wrong. Only for operators."""

    values: Annotated[Values, msgspec.Meta(min_length=1, max_length=1024)]
    daemon: Daemon = "agent"


class ChangedKey(Result, frozen=True):
    """What it was and what it is, as it would be written in the file. ``stronger`` names the environment variable or
    option that wins over the file: what is written there does not hold."""

    key: str
    was: str
    now: str
    stronger: str = ""


class ConfigSet(Result, frozen=True):
    """``host`` is where the daemon runs, ``file`` what it reads there; empty: none."""

    changed: list[ChangedKey]
    host: str
    file: str = ""


class ShowConfig(Params, frozen=True):
    """What is in force. Only for operators: addresses of databases may hold passwords."""

    daemon: Daemon = "agent"


class KeyInForce(Result, frozen=True):
    """A key: its value, as it is and ``written`` as in a file; ``source`` is ``default``, ``file``, ``environment``,
    ``--set`` or ``set`` (while it runs), and ``where`` says it exactly. ``after_restart``: what it would then be, if
    that is something else."""

    value: Any
    written: str
    source: str
    where: str
    default: str
    live: bool
    description: str
    after_restart: str = ""


class ConfigInForce(Result, frozen=True):
    """Every key in the order of its declaration; ``host`` and ``file`` as in ``set_config``."""

    keys: dict[str, KeyInForce]
    host: str
    file: str = ""


#: framework → agent
REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {
    "set_config": (SetConfig, ConfigSet),
    "show_config": (ShowConfig, ConfigInForce),
}
