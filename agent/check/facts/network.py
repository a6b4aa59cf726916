"""Limits on the traffic of containers."""

from __future__ import annotations

from agent.check.facts.base import Fact, Host


def network(why_not: str | None) -> Fact:
    """Return whether egress can be limited. ``why_not`` is the result of the probe."""
    if why_not is not None:
        return Fact.unavailable(why_not)
    return Fact(True, "egress by HTB and a BPF program per container")


def promises(why_not: str | None, host: Host) -> Fact:
    """Return whether shares can be promised: that needs links with known rates that Penstock may shape."""
    if why_not is not None:
        return Fact.unavailable(why_not)
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


def ingress(why_not: str | None) -> Fact:
    """Return whether ingress can be limited, by the same program."""
    if why_not is not None:
        return Fact.unavailable(why_not)
    return Fact(
        True, "a token bucket in BPF per container; excess packets are dropped on arrival (docs/kernel-network.md)"
    )
