"""Serve the configuration calls of a running daemon: show the keys in force, and set keys (wire.config_api)."""

from __future__ import annotations

import datetime as dt
import socket
from typing import Any

from penstock.config import rendering
from penstock.config.live_config import LiveConfig
from penstock.config.settings import SettingsError
from penstock.wire import config_api as api
from penstock.wire.agent_api import Result
from penstock.wire.errors import bad_request, refused
from penstock.wire.relayed_methods import OF_CONFIGURATION
from penstock.wire.reservation_api import OnBehalf


def answer(live_config: LiveConfig[Any], asked: OnBehalf, node: str = "") -> Result:
    """Answer the configuration call of ``asked.user`` (``node``: the user's node, if that is another host).

    ``daemon`` in the parameters is ignored: the relaying agent has checked it.

    Raises:
        RpcError: ``bad_request``: the call is invalid; ``refused``: the user is no operator.
    """
    params = OF_CONFIGURATION.read(asked)
    if not asked.operator:
        raise refused(
            f"{asked.user} is no operator: only those see and set the configuration of a daemon that runs",
            remedy="ask root, or a member of the group `operators` of this host's agent",
        )
    place = {"host": socket.gethostname(), "file": str(live_config.file or "")}
    if not isinstance(params, api.SetConfig):
        return api.ConfigInForce(keys=rendering.document(live_config.loaded, live_config.after_restart()), **place)
    who = f"{asked.user} on {node}" if node else asked.user
    when = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    try:
        changed = live_config.set(params.values, who, when)
    except SettingsError as error:
        raise bad_request("; ".join(error.faults)) from None  # each fault names its key
    return api.ConfigSet(changed=changed, **place)
