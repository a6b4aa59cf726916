"""cgroup v2 files, typed by cgroupspy's interfaces: one small module per group of kernel files, the root injected."""

from agent.cgroups.devices import Disk, whole_disks
from agent.cgroups.tree import Cgroup, CgroupSample, CgroupTree

__all__ = ["Cgroup", "CgroupSample", "CgroupTree", "Disk", "whole_disks"]
