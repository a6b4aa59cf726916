"""Ansible's strategy ``patient_linear``: mitogen's, which waits for this host itself as long as for others.

mitogen gives a connection to another host Ansible's timeout, and one to this host (``delegate_to: localhost``) its own
of 30 s, whatever is set (``ansible_mitogen/connection.py``, ``_connect_local``). Beside other tests that is too short:
such a connection starts a Python process.
"""

from __future__ import annotations

import ansible.constants
import ansible_mitogen.loaders
import ansible_mitogen.strategy
import mitogen.parent

mitogen.parent.Options.connect_timeout = float(ansible.constants.DEFAULT_TIMEOUT)

_Linear = ansible_mitogen.loaders.strategy_loader.get("linear", class_only=True)


class StrategyModule(ansible_mitogen.strategy.StrategyMixin, _Linear):  # type: ignore[misc, valid-type]
    """Ansible looks for this name in a strategy's file."""
