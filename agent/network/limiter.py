"""Network limits of containers: HTB classes on the links that lead out, and a token bucket for ingress.

See docs/kernel-network.md. One agent per network namespace: two would remove each other's classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from agent.network.bpf_map import Counters
from agent.network.enforcement import Enforcement, LinkReport
from agent.network.htb_parameters import Shape


class NetworkLimiter:
    """Every method runs in the limiter's own thread, in the order of the calls, and returns a future.

    pyroute2 0.9 has its own event loop, which cannot run inside another one; and the daemon's loop must not wait for
    netlink (about half a millisecond per class). The limiter works in the network namespace of the thread that created
    it.

    Args:
        links: names of the links to limit; None for those that lead out of this machine (``links.leading_out``). Links
            that appear later are found by the next ``attach`` or ``reconcile``.
        link_bytes_per_s: the capacity of each link; 0: the rate that it reports. If that is unknown, nothing can be
            promised, and opportunistic containers do not yield.
    """

    def __init__(self, links: Sequence[str] | None = None, link_bytes_per_s: int = 0) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="network")
        self._work = self._worker.submit(Enforcement, links, link_bytes_per_s).result()

    def attach(self, slot: int, cgroup: Path, shape: Shape) -> Future[dict[str, str]]:
        """Limit and count all traffic of the cgroup and those below it, from now on. Idempotent.

        Call it before anything runs in the cgroup, so that every socket of the container is included.

        Returns:
            What is not enforced → why, with the remedy: ``network_egress_bytes_per_s on eth0``,
            ``network_rate_bytes_per_s on eth0`` (the promise), ``network_ingress_bytes_per_s``.

        Raises:
            ValueError: the slot is not within 1 … 8191.
        """
        return self._worker.submit(self._work.attach, slot, cgroup, shape)

    def change(self, slot: int, shape: Shape) -> Future[dict[str, str]]:
        """Change limits, promise or class (promotion) at once, for open connections too.

        Returns:
            As for ``attach``; empty, without any action, if nothing changed.

        Raises:
            KeyError: nothing is attached in this slot.
        """
        return self._worker.submit(self._work.change, slot, shape)

    def detach(self, slot: int, cgroup: Path | None) -> Future[None]:
        """Free the slot. ``cgroup`` None: it was removed, and its programs with it. Idempotent."""
        return self._worker.submit(self._work.detach, slot, cgroup)

    def counters(self) -> Future[dict[int, Counters]]:
        """Return slot → traffic counted since it was attached, by this agent or an earlier one."""
        return self._worker.submit(self._work.counters)

    def reconcile(self, known: Mapping[int, tuple[Path, Shape]], under: Path | None = None) -> Future[list[str]]:
        """Make the kernel agree with slot → (cgroup, shape): after a restart, and periodically.

        Classes and trees of ours without an owner are removed; missing or changed ones are restored. Slots may differ
        from those of the earlier agent: its counters are found through the cgroup.

        Args:
            under: the containers' tree: our programs on any other cgroup below it are removed too.

        Returns:
            The repairs, one sentence each.
        """
        return self._worker.submit(self._work.reconcile, dict(known), under)

    def links(self) -> Future[list[LinkReport]]:
        """Return the links that lead out, with rates, promises, and why containers are not limited there."""
        return self._worker.submit(self._work.links)

    def uninstall(self, under: Path | None = None) -> Future[None]:
        """Remove all that is ours: nothing is limited any more, and the kernel's default qdisc is restored.

        Args:
            under: programs that an earlier agent left on cgroups below this directory are removed too.
        """
        return self._worker.submit(self._work.uninstall, under)

    def close(self) -> None:
        """Close the sockets. Limits stay in force; only roots that are not needed are removed."""
        self._worker.submit(self._work.close).result()
        self._worker.shutdown()
