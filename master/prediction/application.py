"""One application: its runs on one scale of time, and the forecast of its next run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from master.prediction.align import in_slots_of
from master.prediction.choice import Predictor, Rules
from master.prediction.reserved_slots import ReservedSlots
from master.prediction.runs import Forecast, Run, Settings

#: Largest number of latest runs that models learn from, per settings and in all.
_LEARNT_OF_SETTINGS, _LEARNT_IN_ALL = 3, 100


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """``slot_s`` is the length of a profile's slots, ``most_slots`` their largest number: longer runs get longer
    slots.
    """

    slot_s: float = 3.0
    most_slots: int = 600
    rules: Rules = field(default_factory=Rules)
    promises: ReservedSlots = field(default_factory=ReservedSlots)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Runs in slots of ``slot_s``, in the order of their ends."""

    slot_s: float
    runs: list[Run]

    @classmethod
    def of(cls, runs: Sequence[tuple[float, Run]], settings: ForecastSettings) -> History:
        """Return the history of runs, each given with the length of its slots in seconds."""
        longest_s = max((slot_s * run.mean.shape[1] for slot_s, run in runs), default=0.0)
        slot_s = settings.slot_s
        while longest_s > slot_s * settings.most_slots * (1 + 1e-9):
            slot_s *= 2
        return cls(slot_s, [in_slots_of(run, had_s, slot_s) for had_s, run in runs])

    def to_learn(self) -> list[Run]:
        """Return the latest runs of each settings, at most as many as can be learnt from in about a minute."""
        latest: dict[Settings, int] = {}
        chosen: list[Run] = []
        for run in reversed(self.runs):
            latest[run.settings] = latest.get(run.settings, 0) + 1
            if latest[run.settings] <= _LEARNT_OF_SETTINGS and len(chosen) < _LEARNT_IN_ALL:
                chosen.append(run)
        return chosen[::-1]


class Application:
    """The trained state of an application. :meth:`learn` takes seconds."""

    def __init__(self, settings: ForecastSettings) -> None:
        self._settings = settings
        self._predictor = Predictor(settings.rules)
        self._slot_s = 0.0  # the slots' length at training
        self.looked_at = False

    @property
    def errors(self) -> dict[str, float]:
        """Return each model's error on held-back settings."""
        return dict(self._predictor.errors)

    def learnt_from(self, history: History, predictor: Predictor) -> None:
        """Replace the predictor by a newly trained one."""
        self._predictor, self._slot_s, self.looked_at = predictor, history.slot_s, True

    def forecast(self, settings: Settings, history: History) -> Forecast:
        """Forecast the next run, in milliseconds. A predictor trained with another length of slots is not used."""
        usable = self._slot_s == history.slot_s
        predictor = self._predictor if usable else Predictor(self._settings.rules)
        return predictor.predict(settings, history.runs)
