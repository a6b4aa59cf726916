"""Limits on the traffic of containers."""

from __future__ import annotations

from agent.check.facts.base import Fact, Host


def of_network(why_not: str | None, host: Host) -> dict[str, Fact]:
    """Return whether egress and ingress can be limited, and shares promised. ``why_not`` is the probe's result."""
    if why_not is not None:
        return dict.fromkeys(("network", "network_promise", "ingress"), Fact.unavailable(why_not))
    return {
        "network": Fact(True, "egress by HTB and a BPF program per container"),
        "network_promise": _promises(host),
        "ingress": Fact(
            True, "a token bucket in BPF per container; excess packets are dropped on arrival (docs/kernel-network.md)"
        ),
    }


def _promises(host: Host) -> Fact:
    """Return whether shares can be promised: that needs links with known rates that Penstock may shape."""
    links = host.links()
    if not links:
        return Fact(False, "no link leads out of this host", "ip link; ip route")
    for link in links:
        if link.why_not is not None:
            return Fact.unavailable(link.why_not)
    unknown = ", ".join(link.name for link in links if not link.rate_bytes_per_s)
    if unknown:
        return Fact(
            False,
            f"the rate of {unknown} is not known: no share can be promised, and opportunistic work does not give way",
            "set network_link_bytes_per_s in /etc/penstock/agent.toml",
        )
    rates = ", ".join(f"{link.name} ({link.rate_bytes_per_s // 125_000} Mbit/s)" for link in links)
    return Fact(True, f"promised shares, and opportunistic work last, on {rates}")
