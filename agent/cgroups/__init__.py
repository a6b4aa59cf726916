"""cgroup v2 files, typed by cgroupspy's interfaces: one small module per group of kernel files, the root injected."""

from agent.cgroups.cgroup import Cgroup
from agent.cgroups.devices import Disk, Placement, disks_of, limited_disks, whole_disks
from agent.cgroups.limits import Applied
from agent.cgroups.reason import Reason
from agent.cgroups.sample import CgroupSample, SummedUse, Total
from agent.cgroups.shrink import Shrunk
from agent.cgroups.tree import CgroupTree
from agent.cgroups.weight import io_weight_works

__all__ = [
    "Applied",
    "Cgroup",
    "CgroupSample",
    "CgroupTree",
    "Disk",
    "Placement",
    "Reason",
    "Shrunk",
    "SummedUse",
    "Total",
    "disks_of",
    "io_weight_works",
    "limited_disks",
    "whole_disks",
]
