"""PURE. Ursa's distributed queues (§4.2.3): one queue of monotasks per resource, its order, concurrency and rate."""

from agent.queues.monotask import COMMANDS, Monotask
from agent.queues.queues import MonotaskQueues
from agent.queues.rates import ProcessingRate

__all__ = ["COMMANDS", "Monotask", "MonotaskQueues", "ProcessingRate"]
