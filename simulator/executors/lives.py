"""What an executor is launched for: its whole life, or one stage after the other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from master.placement.drr import Floats
from master.placement.executors import RESOURCES
from simulator.executors.workload import Application


@dataclass(frozen=True, slots=True, eq=False)
class Life:
    """From a launch to an end: resources × slots, and the slots in which its stages end."""

    profile: Floats
    ends: tuple[int, ...]

    @property
    def slots(self) -> int:
        """How long it lasts at full speed."""
        return int(self.profile.shape[1])


def lives_of(application: Application, by_stage: bool, startup_slots: int) -> list[Life]:
    """One after the other; each launch takes ``startup_slots``, on one core and with the memory of the first slot."""
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
