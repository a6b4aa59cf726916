"""Forecasts of waiting executors: requested once, and stored while they are used and valid."""

from __future__ import annotations

from master.core import events as e
from master.core.instructions import Predict
from master.core.job import Job, Task
from master.prediction.runs import Settings
from penstock.model.executor import Sizing

#: Largest number of stored forecasts.
_MOST = 1024
#: (application with its user, settings, sizing)
_Key = tuple[str, Settings, Sizing]


def key_of(job: Job, task: Task) -> _Key:
    """Return the key of an executor's forecast, with its user: equal names of applications may be unrelated."""
    request = task.request
    assert request is not None
    assert request.command is not None
    assert request.executor is not None
    executor, command = request.executor, request.command
    memory_bytes = request.memory_bytes or command.memory_bytes
    settings = Settings(executor.input_bytes, command.cpu_cores, memory_bytes)
    return f"{job.user}/{executor.application}", settings, executor.sizing


class Forecasts:
    """A bounded store; the least recently used forecast is removed first, and requested again when needed."""

    def __init__(self) -> None:
        self._known: dict[_Key, e.Forecasted] = {}
        self._asked: set[_Key] = set()

    def of(self, key: _Key) -> e.Forecasted | None:
        """Return the forecast; None where it is unknown."""
        known = self._known.pop(key, None)
        if known is not None:
            self._known[key] = known
        return known

    def ask(self, key: _Key) -> Predict | None:
        """Return the request to send; None where the forecast is known or already requested."""
        if key in self._known or key in self._asked:
            return None
        self._asked.add(key)
        return Predict(*key)

    def take(self, answer: e.Forecasted) -> None:
        """Store an answer."""
        key = answer.application, answer.settings, answer.sizing
        self._asked.discard(key)
        self._known[key] = answer
        while len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    def drop(self, application: str) -> None:
        """Drop an application's forecasts, because more is known about it now."""
        for key in [key for key in self._known if key[0] == application]:
            del self._known[key]
