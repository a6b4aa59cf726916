"""Traffic control on the links of this network namespace. BPF programs are removed with their cgroups."""

from __future__ import annotations

from agent.network.htb import Htb, with_htb


def roots() -> list[tuple[str, int]]:
    """Return name and index of each link that has a root qdisc of ours."""

    def look(htb: Htb) -> list[tuple[str, int]]:
        ours = htb.roots()
        return sorted((link.name, link.index) for link in htb.links() if link.index in ours)

    return with_htb(look)


def remove(index: int) -> None:
    """Restore a link's default qdisc.

    Raises:
        PermissionError: CAP_NET_ADMIN is missing.
    """
    with_htb(lambda htb: htb.uninstall(index))
    if index in (left for _, left in roots()):
        raise PermissionError(f"link {index}: Penstock's qdisc could not be removed; run as root")
