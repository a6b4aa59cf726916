"""Probe whether this host can enforce network limits, by asking the kernel, without side effects."""

from __future__ import annotations

import errno

from agent.cgroup_root import cgroup2_mount
from agent.network import bpf
from agent.network.bpf_map import BpfMap
from agent.network.htb import Htb, with_htb


def probe() -> str | None:
    """Return why limits cannot be enforced, with the remedy; None: they can.

    Loads the programs without attaching them, queries the programs on the topmost cgroup, and requests a qdisc that the
    kernel must refuse. The kernel may load its HTB module for that.
    """
    root = cgroup2_mount()
    if root is None:
        return "no cgroup2 file system is mounted; remedy: `mount -t cgroup2 none /sys/fs/cgroup/unified`"
    try:
        with BpfMap() as table:
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
