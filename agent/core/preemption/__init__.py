"""PURE. UBIS on the node (§IV.C): which resources opportunistic work gives up when regular work needs them.

``view`` is one tick, ``contention`` computes how much of a resource is needed, ``victims`` the order of victims,
``policy`` the actions and their times; ``tuning`` sets how much is allocated in the first place.
"""

from agent.core.preemption.policy import Act, Action, Preemption
from agent.core.preemption.tuning import AllocationThreshold
from agent.core.preemption.view import RESOURCES, View

__all__ = ["RESOURCES", "Act", "Action", "AllocationThreshold", "Preemption", "View"]
