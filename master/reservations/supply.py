"""PURE. The cluster's capacity, and the absent part of it: on drained nodes, or on nodes lost recently."""

from __future__ import annotations

from master.reservations.rdl import Bundle


class Supply:
    """The cluster's capacity, updated by :meth:`tell`; times are steps of the plan.

    ``whole`` includes absent nodes, ``present`` does not. A lost node counts for ``kept_steps``, because most nodes
    come back; after that the cluster is assumed to have become smaller.
    """

    def __init__(self, kept_steps: int) -> None:
        self.whole = Bundle()
        self.present = Bundle()
        #: Capacity of all connected nodes, drained ones too.
        self.connected = Bundle()
        self.drained = Bundle()
        self.kept_steps = kept_steps
        self._lost_since: int | None = None

    @property
    def lost(self) -> bool:
        """Return whether a lost node is still expected back."""
        return self._lost_since is not None

    @property
    def away(self) -> bool:
        """Return whether any capacity is absent."""
        return self.whole != self.present

    def update(self, connected: Bundle, drained: Bundle, step: int) -> bool:
        """Set the capacity of connected nodes, and of the drained ones among them. Return whether that changed
        anything.
        """
        before = self.whole, self.present
        whole = Bundle.of(map(max, connected.amounts, self.whole.amounts))
        if whole == connected:
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = step
        elif step - self._lost_since >= self.kept_steps:
            whole, self._lost_since = connected, None
        self.whole, self.connected, self.drained = whole, connected, drained
        self.present = Bundle.of(
            max(0, has - gone) for has, gone in zip(connected.amounts, drained.amounts, strict=True)
        )
        return before != (self.whole, self.present)
