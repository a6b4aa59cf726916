"""T_alloc tuned per node by its effects: UBIS names this as future work.

Additive increase, multiplicative decrease, as TCP finds a link's rate: only probing shows that there is room, and a
proportional decrease quickly ends a series of preemptions.
"""

from __future__ import annotations

from agent.core.settings import TuningSettings


class AllocationThreshold:
    """T_alloc of one node, given one sample per tick."""

    def __init__(self, t_alloc: float, settings: TuningSettings | None) -> None:
        """``settings`` None: it never changes."""
        self._settings = settings
        self.t_alloc = t_alloc
        self._preemptions = 0
        self._step_at: float | None = None  # no step up before this time
        self._back_off_at = float("-inf")  # no step down before this time

    def reconfigure(self, t_alloc: float, settings: TuningSettings | None) -> None:
        """Start over with this value; preemptions so far stay counted."""
        self._settings = settings
        self.t_alloc = t_alloc
        self._step_at = None

    def sampled(self, utilization: float, preemptions: int, now: float) -> float:
        """Apply a sample; return the new T_alloc.

        Args:
            utilization: Of the node's capacity, the larger of CPU's and memory's; a fraction.
            preemptions: How often opportunistic work was ended or paused so far.
            now: Monotonic time in seconds.

        Returns:
            T_alloc from now on. It rises only if it was the limiting factor: utilization came near it. It falls at most
            once in ``calm_s``: consecutive preemptions have one cause.
        """
        preempted, self._preemptions = preemptions > self._preemptions, preemptions
        settings = self._settings
        if settings is None:
            return self.t_alloc
        if self._step_at is None:
            self._step_at = now + settings.calm_s
        if preempted:
            self._step_at = now + settings.calm_s
            if now >= self._back_off_at:
                self._back_off_at = now + settings.calm_s
                self.t_alloc = max(settings.least, self.t_alloc * settings.back_off)
        elif now >= self._step_at and utilization >= self.t_alloc - settings.margin:
            self._step_at = now + settings.calm_s
            self.t_alloc = min(settings.most, self.t_alloc + settings.step)
        return self.t_alloc
