"""Whether this host can enforce network limits, and on which links: asks the kernel, without side effects."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass

from agent.cgroup_root import cgroup2_mount
from agent.network import bpf
from agent.network.bpf_map import BpfMap
from agent.network.htb import Htb, default_routes, with_htb
from agent.network.links import leading_out, link_rate


@dataclass(frozen=True, slots=True)
class LinkOut:
    """One link. ``rate_bytes_per_s`` 0: unknown; ``why_not``: why containers cannot be limited there, with remedy."""

    name: str
    rate_bytes_per_s: int
    why_not: str | None = None


def probe() -> str | None:
    """Return why limits cannot be enforced, with the remedy; None: they can.

    Loads the programs without attaching them, queries the programs on the topmost cgroup, and requests a qdisc that the
    kernel must refuse. The kernel may load its HTB module for that.
    """
    root = cgroup2_mount()
    if root is None:
        return "no cgroup2 file system is mounted; remedy: `mount -t cgroup2 none /sys/fs/cgroup/unified`"
    try:
        with contextlib.closing(BpfMap()) as table:
            for direction in bpf.Direction:
                with bpf.loaded(direction, table.descriptor, slot=1):
                    pass
        bpf.attached(root)
    except OSError as error:
        if error.errno == errno.EPERM:
            return (
                "no CAP_BPF and CAP_NET_ADMIN; remedy: run the agent as root, or give its unit "
                "AmbientCapabilities=CAP_NET_ADMIN CAP_BPF"
            )
        return f"the kernel cannot mark a cgroup's packets ({error}); remedy: a kernel with CONFIG_CGROUP_BPF"
    return with_htb(Htb.refused)


def links_out(link_bytes_per_s: int = 0) -> list[LinkOut]:
    """Return the links that lead out.

    Args:
        link_bytes_per_s: the configured capacity of each; 0: the rate that the link reports.
    """

    def look(htb: Htb) -> list[LinkOut]:
        links = htb.links()
        return [
            LinkOut(link.name, link_bytes_per_s or link_rate(link, links), htb.refuses(link))
            for link in leading_out(links, default_routes())
        ]

    return with_htb(look)
