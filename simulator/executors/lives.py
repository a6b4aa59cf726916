"""Divide an executor's profile into launches: one for its whole life, or one for each stage."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from master.placement.drr import Floats
from master.placement.executors import RESOURCES
from simulator.executors.workload import Application


@dataclass(frozen=True, slots=True, eq=False)
class Life:
    """One launch of an executor. ``profile`` is resources × slots; ``ends`` are the slots where stages end."""

    profile: Floats
    ends: tuple[int, ...]

    @property
    def slots(self) -> int:
        """Return the duration at full speed, in slots."""
        return int(self.profile.shape[1])


def lives_of(application: Application, by_stage: bool, startup_slots: int) -> list[Life]:
    """Return the launches in order. Each starts with ``startup_slots`` on one core, with the first slot's memory."""
    cuts = (0, *application.stages) if by_stage else (0, application.stages[-1])
    lives = []
    for begin, end in pairwise(cuts):
        profile = application.profile[:, begin:end]
        startup = np.zeros((len(RESOURCES), startup_slots))
        startup[RESOURCES.index("cpu")] = 1.0
        startup[RESOURCES.index("memory")] = profile[RESOURCES.index("memory"), 0]
        ends = tuple(stage - begin + startup_slots for stage in application.stages if begin < stage <= end)
        lives.append(Life(np.concatenate((startup, profile), axis=1), ends))
    return lives
