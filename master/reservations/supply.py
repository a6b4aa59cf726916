"""PURE. What the cluster has, and what of it is away: on nodes that are drained, or were lost a short while ago."""

from __future__ import annotations

from master.reservations.rdl import Bundle


class Supply:
    """The cluster's capacity, told by :meth:`tell`; times are steps of the plan.

    ``whole`` counts nodes that are away, ``present`` does not. A node that was lost counts for ``kept_steps``: most
    come back. Behind that the cluster is believed to have become smaller.
    """

    def __init__(self, kept_steps: int) -> None:
        self.whole = Bundle()
        self.present = Bundle()
        #: Capacity of all connected nodes, drained ones too.
        self.connected = Bundle()
        self.drained = Bundle()
        self._kept_steps = kept_steps
        self._lost_since: int | None = None

    @property
    def lost(self) -> bool:
        """Whether a node is away that is believed to come back."""
        return self._lost_since is not None

    @property
    def away(self) -> bool:
        """Whether anything is away."""
        return self.whole != self.present

    def tell(self, connected: Bundle, drained: Bundle, step: int) -> bool:
        """Take what nodes have together, and what of it is of drained nodes. Return whether that changed anything."""
        before = self.whole, self.present
        whole = Bundle.of(map(max, connected.amounts, self.whole.amounts))
        if whole == connected:
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = step
        elif step - self._lost_since >= self._kept_steps:
            whole, self._lost_since = connected, None
        self.whole, self.connected, self.drained = whole, connected, drained
        self.present = less(connected, drained)
        return before != (self.whole, self.present)


def less(capacity: Bundle, gone: Bundle) -> Bundle:
    """Return what is left of a capacity."""
    return Bundle.of(max(0, has - other) for has, other in zip(capacity.amounts, gone.amounts, strict=True))
