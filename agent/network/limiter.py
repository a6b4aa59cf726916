"""What containers may send and receive: HTB classes on the links that lead out, and a token bucket for what comes in.

See docs/kernel-network.md. One agent per network namespace: two would take each other's classes for strays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from agent.network.enforcement import Enforcement, LinkReport
from agent.network.shares import Shape
from agent.network.table import Counters


class NetworkLimiter:
    """Every method is carried out by the limiter's own thread, in the order of the calls, and returns a future.

    pyroute2 0.9 brings an event loop of its own, which cannot run where another one does; and the daemon's loop is not
    to wait for netlink (about half a millisecond a class). Work that containers share is done in the network namespace
    of whoever made the limiter.

    Args:
        links: names of the links to limit; None for those that lead out of this machine (``links.leading_out``). Links
            that come later are found by the next ``attach`` or ``reconcile``.
        link_bytes_per_s: what each link carries; 0: what it says of itself. Where that is not known nothing can be
            promised, and opportunistic containers do not give way.
    """

    def __init__(self, links: Sequence[str] | None = None, link_bytes_per_s: int = 0) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="network")
        self._work = self._worker.submit(Enforcement, links, link_bytes_per_s).result()

    def attach(self, slot: int, cgroup: Path, shape: Shape) -> Future[dict[str, str]]:
        """Limit and count all that the cgroup and its children send and receive, from now on. Idempotent.

        Call it before anything runs in the cgroup: then no socket is missed that the container makes.

        Returns:
            What is not enforced → why, with the remedy: ``network_egress_bytes_per_s on eth0``,
            ``network_rate_bytes_per_s on eth0`` (the promise), ``network_ingress_bytes_per_s``.

        Raises:
            ValueError: the slot is not within 1 … 8191.
        """
        return self._worker.submit(self._work.attach, slot, cgroup, shape)

    def change(self, slot: int, shape: Shape) -> Future[dict[str, str]]:
        """Other limits, another promise, another class (promotion): at once, for open connections too.

        Returns:
            As for ``attach``; empty, and nothing is done, if nothing changed.

        Raises:
            KeyError: nothing is attached in this slot.
        """
        return self._worker.submit(self._work.change, slot, shape)

    def detach(self, slot: int, cgroup: Path | None) -> Future[None]:
        """The slot is free again. ``cgroup`` None: it is gone, and its programs with it. Idempotent."""
        return self._worker.submit(self._work.detach, slot, cgroup)

    def counters(self) -> Future[dict[int, Counters]]:
        """Slot → what went through, since it was attached, by this agent or one before it."""
        return self._worker.submit(self._work.counters)

    def reconcile(self, known: Mapping[int, tuple[Path, Shape]], under: Path | None = None) -> Future[list[str]]:
        """Make the kernel agree with slot → (cgroup, shape): after a restart, and now and then.

        Classes and trees of ours that nobody owns go; what is missing, or was changed by somebody else, is made again.
        Slots need not be those of the agent before: what it counted is found by the cgroup.

        Args:
            under: the containers' tree: our programs on any other cgroup below it go too.

        Returns:
            What was repaired, a sentence each.
        """
        return self._worker.submit(self._work.reconcile, dict(known), under)

    def links(self) -> Future[list[LinkReport]]:
        """The links that lead out, what is known and promised of them, and why containers are not limited there."""
        return self._worker.submit(self._work.links)

    def uninstall(self, under: Path | None = None) -> Future[None]:
        """Remove all that is ours: nothing is limited any more, the kernel's default qdisc is back.

        Args:
            under: programs that an earlier agent left on cgroups below this directory go too.
        """
        return self._worker.submit(self._work.uninstall, under)

    def close(self) -> None:
        """Let go of the kernel. What limits goes on limiting; only roots that nothing needs are taken away."""
        self._worker.submit(self._work.close).result()
        self._worker.shutdown()
