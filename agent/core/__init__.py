"""PURE. The node's decisions: events in, instructions out. :class:`agent.core.node.Node` is the only entry point."""

from agent.core.node import Node

__all__ = ["Node"]
