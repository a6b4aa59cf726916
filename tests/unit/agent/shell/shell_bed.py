"""A shell, and an executor that does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from agent.core import Node
from agent.core import events as e
from agent.core.settings import NodeSettings
from agent.journal import Journal
from agent.shell import Shell
from penstock.model import Capacity


class Silent:
    """Ignores every call: an executor, or a connection's handler."""

    def __init__(self) -> None:
        self.on_event: Callable[[e.Event], object] = lambda event: None

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def make_shell(journal: Journal, executor: object | None = None, *, has_master: bool = False) -> Shell:
    """Return a shell of a node of four cores and 1 GiB, to which a client is connected as session 1."""
    capacity = Capacity(cores=4, memory_bytes=1 << 30)
    node = Node(NodeSettings(node="n", instance="x", capacity=capacity, has_master=has_master))
    shell = Shell(node, journal, cast("Any", executor or Silent()))
    shell.dispatch(e.SessionOpened(1, "u", "test"))
    return shell
