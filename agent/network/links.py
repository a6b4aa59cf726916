"""Select the links that carry containers' traffic out of this machine, from the kernel's description of its links."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSFS = Path("/sys/class/net")
_AGGREGATES = ("bond", "team")
#: Tunnels whose outer packets carry no mark (created by a process, or scrubbed by the kernel): limit the inner ones.
_SCRUBBING = ("tun", "wireguard")


@dataclass(frozen=True, slots=True)
class Link:
    """One network link, as rtnetlink describes it."""

    index: int
    name: str
    kind: str = ""
    """``IFLA_INFO_KIND``: bond, bridge, veth, vlan …; empty for hardware."""
    up: bool = True
    loopback: bool = False
    master: int = 0
    """Index of the bond, bridge or VRF that it belongs to; 0: none."""
    lower: int = 0
    """Index of the link that it is stacked on (VLAN, macvlan) or paired with (veth), in this namespace; 0: none."""


def leading_out(links: Sequence[Link], default_routes: Collection[str]) -> list[Link]:
    """Return the links to limit, so that each packet that leaves the machine passes exactly one class.

    - hardware, including virtual hardware (virtio, SR-IOV, Hyper-V);
    - a bond or team instead of its ports, so that the limit holds for their sum;
    - a bridge instead of its ports, if one of them leads out; so Docker's and libvirt's internal bridges are not
      limited, nor is loopback;
    - not a VLAN or macvlan: its packets leave by the link beneath, where they pass a class;
    - WireGuard and tun, because the mark does not survive them;
    - any other virtual link (veth, vxlan …) only with a default route: the way out of a network namespace.

    Links that are administratively down are left out.
    """
    by_index = {link.index: link for link in links}
    ports: dict[int, list[Link]] = {}
    for link in links:
        ports.setdefault(link.master, []).append(link)

    def leads(link: Link) -> bool:
        if not link.up or link.loopback or link.kind == "vrf":
            return False
        if link.kind in _AGGREGATES or link.kind in _SCRUBBING or not link.kind:
            return True
        if link.lower in by_index and link.kind != "veth":
            return False
        if link.kind == "bridge" and any(leads(port) for port in ports.get(link.index, ())):
            return True
        return link.name in default_routes

    def is_port(link: Link) -> bool:
        master = by_index.get(link.master)
        return master is not None and master.kind != "vrf"

    return [link for link in links if leads(link) and not is_port(link)]


def link_rate(link: Link, links: Sequence[Link], sysfs: Path = _SYSFS) -> int:
    """Return the bytes per second that a link reports; 0: unknown, as in most virtual machines.

    Only hardware and its aggregates are trusted; a bridge is as fast as its fastest trusted port. Other virtual links
    report arbitrary rates (veth: 10 Gbit/s, tap: 10 Mbit/s).
    """
    if link.kind == "bridge":
        ports = (port for port in links if port.master == link.index and port.kind != "bridge")
        return max((link_rate(port, links, sysfs) for port in ports), default=0)
    if link.kind and link.kind not in _AGGREGATES:
        return 0
    try:
        if int((sysfs / link.name / "ifindex").read_text()) != link.index:  # of another network namespace
            return 0
        mbit_per_s = int((sysfs / link.name / "speed").read_text())
    except (OSError, ValueError):  # EINVAL: the link is down
        return 0
    return max(0, mbit_per_s) * 125_000
