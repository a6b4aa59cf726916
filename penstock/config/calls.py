"""Serve the configuration calls of a running daemon: show the keys in force, and set keys (wire.config_api)."""

from __future__ import annotations

import datetime as dt
import socket
from dataclasses import dataclass
from typing import Any

from penstock.config import rendering
from penstock.config.live_config import LiveConfig
from penstock.config.settings import SettingsError
from penstock.wire import config_api as api
from penstock.wire.agent_api import Result
from penstock.wire.errors import bad_request, refused
from penstock.wire.relayed_methods import OF_CONFIGURATION
from penstock.wire.reservation_api import OnBehalf


@dataclass(frozen=True, slots=True)
class ConfigurationCalls:
    """The configuration calls of one daemon."""

    live_config: LiveConfig[Any]

    def answer(self, asked: OnBehalf, node: str = "") -> Result:
        """Answer the call of ``asked.user`` (``node``: the user's node, if that is another host).

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
        if isinstance(params, api.SetConfig):
            return self._set(params, f"{asked.user} on {node}" if node else asked.user)
        return self._in_force()

    def _set(self, params: api.SetConfig, who: str) -> api.ConfigSet:
        when = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        try:
            changed = self.live_config.set(params.values, who, when)
        except SettingsError as error:
            raise bad_request("; ".join(error.faults), field="values") from None
        return api.ConfigSet(changed=changed, **self._place())

    def _in_force(self) -> api.ConfigInForce:
        later = self.live_config.after_restart()
        keys: dict[str, api.KeyInForce] = {
            key: api.KeyInForce(**facts, after_restart=later.get(key, ""))
            for key, facts in rendering.document(self.live_config.loaded).items()
        }
        return api.ConfigInForce(keys=keys, **self._place())

    def _place(self) -> dict[str, str]:
        return {"host": socket.gethostname(), "file": str(self.live_config.file or "")}
