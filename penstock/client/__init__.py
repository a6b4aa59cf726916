"""Client library of the host's agent: asyncio here, threads in :mod:`penstock.client.blocking`.

Names are imported on first use. Commands that need no event loop (:mod:`penstock.client.session`) therefore avoid the
import of asyncio, which would add about half to their processor time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.agent import AgentClient
    from penstock.client.container import Container
    from penstock.client.errors import AgentUnavailable, JobCancelled, NotPlaced
    from penstock.client.job import Job
    from penstock.client.monotask import Monotask

__all__ = ["AgentClient", "AgentUnavailable", "Container", "Job", "JobCancelled", "Monotask", "NotPlaced"]

_MODULES = {"AgentClient": "agent", "Container": "container", "Job": "job", "Monotask": "monotask"}
_MODULES |= dict.fromkeys(("AgentUnavailable", "JobCancelled", "NotPlaced"), "errors")


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found  # later accesses bypass this function
    return found
