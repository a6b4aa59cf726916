"""Our classes on one link, kept in agreement with the kernel."""

from __future__ import annotations

import contextlib
import errno

from pyroute2.netlink.exceptions import NetlinkError

from agent.network import htb_parameters
from agent.network.htb import Htb, reason
from agent.network.htb_parameters import HtbClass, Shape
from agent.network.links import Link

#: The rate for draining a class that has no limit any more: 100 Gbit/s.
_UNLIMITED_BYTES_PER_S = 12_500_000_000


class HtbTree:
    """Our classes on one link with rate ``link_bytes_per_s``, 0: unknown.

    Settings already sent to the kernel are not sent again; ``repair`` verifies them.
    """

    def __init__(self, htb: Htb, link: Link, link_bytes_per_s: int) -> None:
        self.link = link
        self.link_bytes_per_s = link_bytes_per_s
        self.why: str | None = None
        """Why there is no tree although one is needed, with the remedy."""
        self.installed = False  # whether our root is on the link, as last known
        self._htb = htb
        self._own: dict[int, HtbClass] = {}
        self._promised: dict[int, int] = {}
        self._draining: set[int] = set()

    def limit(self, slot: int, shape: Shape) -> dict[str, str]:
        """Create the container's own class, if it needs one; its former class stays until ``settle``.

        Returns:
            What is not enforced on this link → why, with the remedy.
        """
        failed: dict[str, str] = {}
        self._promised.pop(slot, None)
        promised = htb_parameters.promise(shape)
        room = max(0, self.link_bytes_per_s - sum(self._promised.values()))
        if promised and room:
            self._promised[slot] = min(promised, room)
        wanted = htb_parameters.own(slot, shape, self.link_bytes_per_s, room)
        if htb_parameters.needs_tree(shape, self.link_bytes_per_s):
            self.why = self._have(wanted)
            if self.why is not None and shape.ceil_bytes_per_s is not None:
                failed["network_egress_bytes_per_s"] = self.why
        if promised and (why := self._not_promised(promised, room)) is not None:
            failed["network_rate_bytes_per_s"] = why
        return {f"{what} on {self.link.name}": why for what, why in failed.items()}

    def has(self, slot: int) -> bool:
        """Return whether the container has a class of its own; one that only drains does not count."""
        return not self._own.keys().isdisjoint(htb_parameters.own_minors(slot))

    def concerns(self, slot: int) -> bool:
        """Return whether the kernel has a class of the slot, one that drains included."""
        return not (self._own.keys() | self._draining).isdisjoint(htb_parameters.own_minors(slot))

    def settle(self, slot: int, shape: Shape | None) -> None:
        """Remove the container's former class once no packet waits in it; its packets now go to the new one."""
        if shape is None:
            self._promised.pop(slot, None)
        kept = htb_parameters.own_minor(slot, shape) if shape is not None else 0
        wanted = shape is not None and htb_parameters.own(slot, shape, self.link_bytes_per_s, 0) is not None
        for minor in htb_parameters.own_minors(slot):
            if minor in self._own and not (wanted and minor == kept):
                self._release(minor, shape)

    def drop_packets(self, slot: int) -> None:
        """Drop packets of the slot's former container."""
        for minor in htb_parameters.own_minors(slot):
            if minor in self._draining:
                self._draining.discard(minor)
                self._htb.delete_class(self.link.index, minor)

    @property
    def draining(self) -> bool:
        """Whether a class waits for its last packets."""
        return bool(self._draining)

    def sweep(self) -> None:
        """Remove the draining classes that are empty."""
        if not self._draining:
            return
        found = self._htb.classes(self.link.index)
        for minor in list(self._draining):
            if minor not in found or not found[minor].waiting:
                self._draining.discard(minor)
                self._htb.delete_class(self.link.index, minor)

    def repair(self, *, needed: bool, root_installed: bool) -> list[str]:
        """Make the kernel agree with this tree; return the repairs. ``root_installed``: the link has our root."""
        self.sweep()
        name, index = self.link.name, self.link.index
        if not needed and not root_installed:
            self.installed = False
            self._draining.clear()
            return []
        found = self._htb.classes(index)
        if not needed:
            self.remove()
            return [f"an unneeded tree on {name} was removed"] if found else []
        wanted = {each.minor: each for each in [*htb_parameters.common(self.link_bytes_per_s), *self._own.values()]}
        strays = found.keys() - wanted.keys() - self._draining
        wrong = [m for m, each in wanted.items() if m not in found or found[m].htb != each]
        moved = {m for m in wrong if m in found and found[m].htb.parent != wanted[m].parent}
        for minor in sorted(strays | moved, key=lambda minor: (minor == htb_parameters.LINK, minor)):  # the parent last
            self._htb.delete_class(index, minor)
        repaired = [f"class {minor:x} on {name}, which has no owner, was removed" for minor in sorted(strays)]
        if not wrong:
            return repaired
        self.why = self._install()
        if self.why is None:
            repaired += [f"class {minor:x} on {name} was wrong and was restored" for minor in wrong]
        return repaired

    def remove(self) -> None:
        """Remove all classes of ours, if any; the kernel restores its default, and other roots are unchanged."""
        self.installed = False
        self._draining.clear()
        self._htb.uninstall(self.link.index)

    def _not_promised(self, promised: int, room: int) -> str | None:
        name = self.link.name
        if not self.link_bytes_per_s:
            return (
                f"the rate of {name} is unknown, so no part of it can be promised; remedy: set network_link_bytes_per_s"
            )
        if promised > room:
            return (
                f"{name} has {room} of its {self.link_bytes_per_s} bytes/s left, not {promised}; remedy: promise less"
            )
        return self.why

    def _have(self, wanted: HtbClass | None) -> str | None:
        """Set a class. Our root is almost always there, so check only when the kernel reports that it is not."""
        if wanted is None:
            return None if self.installed else self._install()
        if self._own.get(wanted.minor) == wanted and self.installed:
            return None
        self._own[wanted.minor] = wanted
        self._draining.discard(wanted.minor)
        if not self.installed:
            return self._install()
        try:
            self._htb.set_class(self.link.index, wanted)
        except NetlinkError as error:
            return self._install() if error.code == errno.ENOENT else reason(self.link.name, error)
        return None

    def _install(self) -> str | None:
        """Install our root and all classes."""
        self.installed = False
        why = self._htb.install(self.link)
        if why is not None:
            return why
        try:
            for each in htb_parameters.common(self.link_bytes_per_s):
                self._htb.set_class(self.link.index, each)
                if each.minor != htb_parameters.LINK:
                    self._htb.queue_by_flow(self.link.index, each.minor)
            for each in self._own.values():
                self._htb.set_class(self.link.index, each)
        except NetlinkError as error:
            return reason(self.link.name, error)
        self.installed = True
        return None

    def _release(self, minor: int, shape: Shape | None) -> None:
        """Let the packets in a class drain at the container's present rate, then remove the class."""
        left = self._own.pop(minor)
        found = self._htb.find_class(self.link.index, minor)
        if found is None:
            return
        if not found.waiting:
            self._htb.delete_class(self.link.index, minor)
            return
        limit = shape.ceil_bytes_per_s if shape is not None else None  # for the last packets of a removed container
        with contextlib.suppress(NetlinkError):  # the link is going away, or permission was lost
            drained = left.draining(limit or self.link_bytes_per_s or _UNLIMITED_BYTES_PER_S)
            self._htb.set_class(self.link.index, drained)
        self._draining.add(minor)
