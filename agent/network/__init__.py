"""Network limits of containers: HTB classes on the links, and BPF programs that mark, limit and count."""

from __future__ import annotations

from agent.network.bpf_map import Counters
from agent.network.htb_parameters import Shape, shape_of
from agent.network.limiter import NetworkLimiter
from agent.network.probe import LinkOut, links_out, probe
from agent.network.programs import MAX_SLOT

__all__ = ["MAX_SLOT", "NetworkLimiter", "Shape", "Counters", "LinkOut", "links_out", "probe", "shape_of"]
