"""One application: its runs on one scale of time, and what its next run is promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from master.prediction.align import in_slots_of
from master.prediction.choice import Predictor, Rules
from master.prediction.promised import Promises
from master.prediction.runs import Forecast, Run, Settings

#: Models learn from so many runs with the same settings, and from so many in all, the latest.
_LEARNT_OF_SETTINGS, _LEARNT_IN_ALL = 3, 100


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """``slot_s`` is the length of a profile's slots, of which it has ``most_slots``: longer runs have longer slots."""

    slot_s: float = 3.0
    most_slots: int = 600
    rules: Rules = field(default_factory=Rules)
    promises: Promises = field(default_factory=Promises)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Runs in slots of ``slot_s``, in the order in which they ended."""

    slot_s: float
    runs: list[Run]

    @classmethod
    def of(cls, runs: Sequence[tuple[float, Run]], settings: ForecastSettings) -> History:
        """Of runs that were recorded in slots of so many seconds each."""
        longest_s = max((slot_s * run.mean.shape[1] for slot_s, run in runs), default=0.0)
        slot_s = settings.slot_s
        while longest_s > slot_s * settings.most_slots * (1 + 1e-9):
            slot_s *= 2
        return cls(slot_s, [in_slots_of(run, had_s, slot_s) for had_s, run in runs])

    def to_learn(self) -> list[Run]:
        """The latest runs of each settings, and no more in all than can be learnt from in a minute or so."""
        latest: dict[Settings, int] = {}
        chosen: list[Run] = []
        for run in reversed(self.runs):
            latest[run.settings] = latest.get(run.settings, 0) + 1
            if latest[run.settings] <= _LEARNT_OF_SETTINGS and len(chosen) < _LEARNT_IN_ALL:
                chosen.append(run)
        return chosen[::-1]


class Application:
    """What has been learnt of it. :meth:`learn` takes seconds."""

    def __init__(self, settings: ForecastSettings) -> None:
        self._settings = settings
        self._predictor = Predictor(settings.rules)
        self._slot_s = 0.0  # of what was learnt
        self.looked_at = False

    @property
    def errors(self) -> dict[str, float]:
        """By how much each model missed held-back settings."""
        return dict(self._predictor.errors)

    def learnt_from(self, history: History, predictor: Predictor) -> None:
        """Another predictor takes the place of the one that was."""
        self._predictor, self._slot_s, self.looked_at = predictor, history.slot_s, True

    def forecast(self, settings: Settings, history: History) -> Forecast:
        """What the next run will use; milliseconds. What was learnt in slots of another length is of no use."""
        usable = self._slot_s == history.slot_s
        predictor = self._predictor if usable else Predictor(self._settings.rules)
        return predictor.predict(settings, history.runs)
