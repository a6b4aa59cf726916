"""The links that lead out of this machine, each with the tree of our classes on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.network.htb import Htb, default_routes
from agent.network.htb_tree import HtbTree
from agent.network.link_changes import LinkChanges
from agent.network.links import Link, leading_out, link_rate

#: The links are listed at least once in so many looks, in case a message about them was missed.
_MOST_LOOKS = 10


class LimitedLinks:
    """``trees`` are those of the links as they were last looked at.

    Args:
        link_bytes_per_s: the capacity of each link; 0: the rate that it reports.
    """

    def __init__(self, link_bytes_per_s: int) -> None:
        """Use the network namespace of this thread. Raises OSError: no descriptor is free."""
        self.trees: list[HtbTree] = []
        self._link_bytes_per_s = link_bytes_per_s
        self._htb = Htb()
        self._changes = LinkChanges()
        self._changed = True  # since the last look
        self._links: Sequence[Link] = ()
        self._looks = 0  # since the links were listed

    def changed(self) -> bool:
        """Return whether the kernel has sent a message about a link since the last look."""
        self._changed |= self._changes.seen()
        return self._changed

    def look(self, *, again: bool) -> bool:
        """Look at the links and their rates if a link has changed, or ``again``; return whether there are new trees."""
        if not self.changed() and not again:
            return False
        self._looks += 1
        if self._changed or self._looks >= _MOST_LOOKS:  # a list takes milliseconds
            self._links, self._looks = self._htb.links(), 0
        former = {tree.link.index: tree for tree in self.trees}
        trees = [self._tree(link, former.get(link.index)) for link in leading_out(self._links, default_routes())]
        added = any(tree not in self.trees for tree in trees)
        self.trees, self._changed = trees, False
        return added

    def repair(self, needed: Callable[[HtbTree], bool]) -> list[str]:
        """Make the kernel agree with the trees, and remove our classes from all other links; return the repairs."""
        roots = self._htb.roots()
        repaired: list[str] = []
        for tree in self.trees:
            repaired += tree.repair(needed=needed(tree), root_installed=tree.link.index in roots)
        for index in sorted(roots - {tree.link.index for tree in self.trees}):
            self._htb.uninstall(index)
            repaired.append(f"a tree on link {index}, which is no longer limited, was removed")
        return repaired

    def close(self, needed: Callable[[HtbTree], bool]) -> None:
        """Close the sockets. Limits stay in force; only trees that are not needed are removed."""
        for tree in self.trees:
            tree.sweep()
            if tree.installed and not needed(tree):
                tree.remove()
        self._htb.close()
        self._changes.close()

    def _tree(self, link: Link, former: HtbTree | None) -> HtbTree:
        link_bytes_per_s = self._link_bytes_per_s or link_rate(link, self._links)
        if former is not None and (former.link.name, former.link_bytes_per_s) == (link.name, link_bytes_per_s):
            return former
        if former is not None and former.installed:  # its classes belong to a tree for another rate
            former.remove()
        return HtbTree(self._htb, link, link_bytes_per_s)
