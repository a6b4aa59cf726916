"""Map a path to the block devices on which ``io.max`` takes effect (docs/kernel-disks.md)."""

from agent.cgroups.devices.blocks import Disk, limited_disks, whole_disks
from agent.cgroups.devices.placement import Placement, Sources, disks_of

__all__ = ["Disk", "Placement", "Sources", "disks_of", "limited_disks", "whole_disks"]
