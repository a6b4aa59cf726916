"""One fact per feature that Penstock enforces: whether this host can, why (not), and the command that remedies it.

In the daemon, the facts are about its tree; in ``penstock check``, about a tree that is created for the probe and
removed again. They are found by asking the kernel, not from its version.
"""

from __future__ import annotations

from agent.cgroups import CgroupTree
from agent.check.facts.base import HOST, Fact, Host
from agent.check.facts.disks import paths
from agent.check.facts.host import clock, delegation, pressure, swap, users
from agent.check.facts.libraries import libraries
from agent.check.facts.network import of_network
from agent.check.facts.tree import of_tree, probe_tree, without_tree

__all__ = ["Fact", "Host", "HOST", "enforcement", "libraries", "paths", "probe_tree"]


def enforcement(tree: CgroupTree | None, host: Host = HOST) -> dict[str, Fact]:
    """Return name → fact, in the order of the status page. Takes some tens of milliseconds, most of it for netlink."""
    facts = of_tree(tree, host) if tree is not None else without_tree(host)
    if tree is None:
        why_not: str | None = f"network traffic is limited by cgroup; remedy: {facts['containers'].remedy}"
    else:
        why_not = host.network_why_not()
    facts |= of_network(why_not, host)
    facts["pressure"] = pressure(host)
    facts["users"] = users(host)
    facts["delegation"] = delegation(tree, host)
    facts["swap"] = swap(host)
    facts["clock"] = clock(host)
    return facts
