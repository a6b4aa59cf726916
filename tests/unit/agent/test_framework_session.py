"""A session serves exactly the declared methods."""

from __future__ import annotations

from agent.frameworks import FrameworkSession
from penstock.wire import agent_methods, relayed_methods


def test_every_declared_method_has_a_handler() -> None:
    declared = {**agent_methods.REQUESTS, **relayed_methods.REQUESTS}
    assert FrameworkSession.METHODS.keys() == declared.keys() - {"hello"}
