"""PURE. UBIS on the node (§IV.C): what opportunistic work gives up when the resources are wanted.

``view`` is one tick, ``contention`` how much of a resource is wanted back, ``victims`` who goes first, ``policy`` what
is done about it and when; ``tuning`` how much is allocated in the first place.
"""

from agent.core.preemption.policy import Act, Action, Preemption
from agent.core.preemption.tuning import AllocationThreshold
from agent.core.preemption.view import RESOURCES, View

__all__ = ["RESOURCES", "Act", "Action", "AllocationThreshold", "Preemption", "View"]
