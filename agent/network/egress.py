"""What each container may send: a class of its own on every link that leads out, and the mark that leads there.

The kernel holds everything; it outlives the agent. Of an agent's crash nothing is noticed, and ``reconcile`` puts right
what happened meanwhile. One agent per network namespace.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import structlog
from pyroute2.netlink.exceptions import NetlinkError

from agent.network import bpf
from agent.network.counters import Counters
from agent.network.htb import MIN_RATE_BYTES_PER_S, Htb, class_id, default_routes, interfaces, named, reason
from agent.network.links import Link, leading_out

log = structlog.get_logger()
P = ParamSpec("P")
T = TypeVar("T")

#: Slots are HTB's minor numbers; the highest few are left to the kernel.
MAX_SLOT = 65_000


class EgressLimiter:
    """Limits what containers send. Every call waits for the kernel (a few milliseconds) and may come from any thread.

    pyroute2 0.9 brings an event loop of its own, which cannot run where another one does, so all calls are carried out
    by one thread that belongs to the limiter.

    Args:
        links: names of the links to limit; None for those that lead out of this machine (``links.leading_out``). Links
            that come later are found by the next ``attach`` or ``reconcile``.
    """

    def __init__(self, links: Sequence[str] | None = None) -> None:
        self._names = links
        self._seen: frozenset[tuple[int, str]] = frozenset()
        self._links: list[Link] = []
        self._missing: dict[str, str] = {}
        self._rates: dict[int, int] = {}
        self._cgroups: dict[int, Path] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="egress")
        self._htb = self._call(Htb)

    def attach(self, slot: int, cgroup: Path, rate_bytes_per_s: int) -> dict[str, str]:
        """Limit all that the cgroup and its children send, on each link, from now on. Idempotent.

        Call it before anything runs in the cgroup: then no socket is missed that the container makes.

        Returns:
            Link → why the container is not limited there, with the remedy; empty when all is well.

        Raises:
            ValueError: the slot is not within 1 … 65000.
        """
        if not 1 <= slot <= MAX_SLOT:
            raise ValueError(f"slot {slot} is not within 1 … {MAX_SLOT}")
        return self._call(self._attach, slot, cgroup, rate_bytes_per_s)

    def change(self, slot: int, rate_bytes_per_s: int) -> None:
        """Another rate, at once, for open connections too. A link that refuses is logged.

        Raises:
            KeyError: nothing is attached in this slot.
            ValueError: less than 1,250 bytes per second.
        """
        if rate_bytes_per_s < MIN_RATE_BYTES_PER_S:
            raise ValueError(_too_slow(rate_bytes_per_s))
        if self._rates[slot] != rate_bytes_per_s:
            self._call(self._change, slot, rate_bytes_per_s)

    def detach(self, slot: int, cgroup: Path | None) -> None:
        """The slot is free again. ``cgroup`` None: it is gone, and its program with it. Idempotent."""
        self._call(self._detach, slot, cgroup)

    def counters(self) -> dict[int, Counters]:
        """Slot → what was sent from it, over all links, since its class was made."""
        return self._call(self._counters)

    def reconcile(self, known: Mapping[int, tuple[Path, int]]) -> None:
        """Make the kernel agree with slot → (cgroup, rate): after a restart, or when somebody meddled.

        Classes of ours that nobody owns go, as do our roots on links that need none; what is missing is made again.
        """
        self._call(self._reconcile, dict(known))

    def uninstall(self) -> None:
        """Remove all that is ours, on all links: nothing is limited any more, the kernel's default qdisc is back."""
        self._call(self._uninstall)

    def close(self) -> None:
        """Let go of the kernel. Classes stay and go on limiting; only roots without any class are taken away."""
        self._call(self._close)
        self._worker.shutdown()

    def _call(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._worker.submit(do, *args, **kwargs).result()

    # ------------------------------------------------------------ all below runs in the limiter's own thread

    def _attach(self, slot: int, cgroup: Path, rate_bytes_per_s: int) -> dict[str, str]:
        self._look(again=False)
        if rate_bytes_per_s < MIN_RATE_BYTES_PER_S:
            return {link.name: _too_slow(rate_bytes_per_s) for link in self._links}
        failed = dict(self._missing)
        for link in self._links:
            why = self._limit(link, slot, rate_bytes_per_s)
            if why is not None:
                failed[link.name] = why
        try:
            bpf.attach(cgroup, class_id(slot))
        except OSError as error:
            self._detach(slot, None)
            return {link.name: _why_not_marked(cgroup, error) for link in self._links}
        self._rates[slot], self._cgroups[slot] = rate_bytes_per_s, cgroup
        return failed

    def _change(self, slot: int, rate_bytes_per_s: int) -> None:
        self._rates[slot] = rate_bytes_per_s
        for link in self._links:
            why = self._limit(link, slot, rate_bytes_per_s)
            if why is not None:
                log.warning("egress rate not changed", link=link.name, slot=slot, why=why)

    def _detach(self, slot: int, cgroup: Path | None) -> None:
        self._rates.pop(slot, None)
        self._cgroups.pop(slot, None)
        if cgroup is not None:
            _unmark(cgroup)
        for link in self._links:
            self._htb.delete_class(link.index, slot)

    def _counters(self) -> dict[int, Counters]:
        total: dict[int, Counters] = {}
        for link in self._links:
            for slot, sent in self._htb.classes(link.index).items():
                total[slot] = total.get(slot, Counters(0, 0)) + sent
        return total

    def _reconcile(self, known: dict[int, tuple[Path, int]]) -> None:
        for slot in self._rates.keys() - known.keys():
            self._detach(slot, self._cgroups.get(slot))
        self._look(again=True)
        for slot, (cgroup, rate_bytes_per_s) in known.items():
            for link, why in self._attach(slot, cgroup, rate_bytes_per_s).items():
                log.warning("egress not limited", link=link, slot=slot, why=why)
        wanted = {link.index for link in self._links} if self._rates else set[int]()
        for index in self._htb.roots():
            if index not in wanted:
                self._htb.uninstall(index)
                continue
            for slot in self._htb.classes(index).keys() - self._rates.keys():
                self._htb.delete_class(index, slot)

    def _uninstall(self) -> None:
        for cgroup in self._cgroups.values():
            _unmark(cgroup)
        self._rates.clear()
        self._cgroups.clear()
        for index in self._htb.roots():
            self._htb.uninstall(index)

    def _close(self) -> None:
        for index in self._htb.roots():
            if not self._htb.classes(index):
                self._htb.uninstall(index)
        self._htb.close()

    def _look(self, *, again: bool) -> None:
        """Know the links, and limit all that is attached on those that are new."""
        there = interfaces()
        if there == self._seen and not again:
            return
        links = self._htb.links()
        if self._names is None:
            chosen = leading_out(links, default_routes())
        else:
            chosen, self._missing = named(links, self._names)
        added = [link for link in chosen if link.index not in {former.index for former in self._links}]
        self._seen, self._links = there, chosen
        for link in added if self._rates else ():
            why = self._install(link)
            if why is not None:
                log.warning("egress not limited", link=link.name, why=why)

    def _limit(self, link: Link, slot: int, rate_bytes_per_s: int) -> str | None:
        """Make or change one class. Almost always our root is there, so look only when the kernel says it is not."""
        for last in (False, True):
            try:
                self._htb.set_class(link.index, slot, rate_bytes_per_s)
            except NetlinkError as error:
                if last or error.code != errno.ENOENT:
                    return reason(link.name, error)
                why = self._install(link)
                if why is not None:
                    return why
            else:
                break
        return None

    def _install(self, link: Link) -> str | None:
        """Our root on the link and the classes of all that is attached."""
        why = self._htb.install(link)
        if why is not None:
            return why
        try:
            for slot, rate_bytes_per_s in self._rates.items():
                self._htb.set_class(link.index, slot, rate_bytes_per_s)
        except NetlinkError as error:
            return reason(link.name, error)
        return None


def _unmark(cgroup: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # it went with its cgroup
        bpf.detach(cgroup)


def _too_slow(rate_bytes_per_s: int) -> str:
    return f"{rate_bytes_per_s} bytes/s cannot be enforced; remedy: ask for at least {MIN_RATE_BYTES_PER_S} (10 kbit/s)"


def _why_not_marked(cgroup: Path, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"the cgroup {cgroup} is gone"
    if error.errno == errno.EPERM:
        return "no CAP_BPF and CAP_NET_ADMIN, or a BPF program further up forbids it; remedy: run `penstock check`"
    if error.errno in (errno.EBADF, errno.EINVAL):
        return f"{cgroup} is not in a cgroup2 mount, or the kernel lacks CONFIG_CGROUP_BPF ({error})"
    return str(error)
