"""cgroup v2 files, typed by cgroupspy's interfaces: one small module per group of kernel files, the root injected."""

from agent.cgroups.cgroup import Cgroup
from agent.cgroups.devices import Disk, disk_of, whole_disks
from agent.cgroups.reason import Reason
from agent.cgroups.sample import CgroupSample
from agent.cgroups.tree import CgroupTree

__all__ = ["Cgroup", "CgroupSample", "CgroupTree", "Disk", "Reason", "disk_of", "whole_disks"]
