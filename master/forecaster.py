"""The shell of prediction: stores the use of executors, answers forecasts, and trains models, outside the event loop.

One thread works with the store and answers, in milliseconds; another waits for a process that trains models. An
unavailable store never stops the master: bounds are reserved, as for an unknown application.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

from master.core import events as e
from master.core.instructions import Predict, StoreRun
from master.prediction import Forecast, Settings, profile_of, reservation
from master.prediction.application import Application, ForecastSettings, History
from master.store import Database, Depository, Recorded, StoreError
from master.training import Train, TrainingError, in_a_process

log = structlog.get_logger()
T = TypeVar("T")

#: Seconds until an unavailable store is tried again.
_RETRY_S = 10.0
#: Number of applications whose trained state is kept; others are trained again when needed.
_MOST_APPLICATIONS = 256


class Forecaster:
    """Answers ``Predict`` and ``StoreRun``; calls ``tell`` in the loop with the events ``Forecasted`` and
    ``ForecastsOutdated``.
    """

    def __init__(
        self,
        database: str,
        settings: ForecastSettings,
        tell: Callable[[e.Forecasted | e.ForecastsOutdated], None],
        train: Train = in_a_process,
    ) -> None:
        self._url = database
        self.settings = settings
        self._tell = tell
        self._train_models = train
        self._loop = asyncio.get_running_loop()
        self._depository: Depository | None = None
        self._database: Database | None = None
        self._tried_at = -_RETRY_S
        self._trouble = ""
        self._applications: dict[str, Application] = {}
        self._learning: set[str] = set()
        self._unavailable: dict[str, str] = {}  # models missing in the last training
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._answers = ThreadPoolExecutor(1, "forecasts")
        self._models = ThreadPoolExecutor(1, "models")

    def ask(self, instruction: Predict | StoreRun) -> None:
        """Carry out an instruction; an event follows. After :meth:`close` none does."""
        if self._stopping.is_set():
            return
        match instruction:
            case Predict():
                self._answers.submit(self._root, self._predict, instruction)
            case StoreRun():
                self._answers.submit(self._root, self._keep, instruction, time.time())

    async def read(self, question: Callable[[Depository, Callable[[str], Application]], T]) -> T:
        """Run a question on the store and the trained applications, and return its answer.

        Raises: StoreError: the store is unavailable.
        """
        return await self._loop.run_in_executor(self._answers, lambda: question(self._store(), self._known))

    async def close(self) -> None:
        """Finish storing; abandon training."""
        self._stopping.set()
        await asyncio.to_thread(self._models.shutdown, cancel_futures=True)
        await asyncio.to_thread(self._answers.shutdown)
        if self._database is not None:
            self._database.close()

    # ------------------------------------------------------------ in the thread of answers

    def _root(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:
            log.error("forecasting failed", exc_info=error)

    def _predict(self, asked: Predict) -> None:
        forecast, slot_s = None, self.settings.slot_s
        try:
            forecast, slot_s = self._forecast(asked.application, asked.settings)
        except StoreError as error:
            self._complain(error)
            forecast = reservation(asked.settings, [], why="the store cannot be had")
        except Exception as error:
            log.error("a forecast failed", application=asked.application, exc_info=error)
            forecast = reservation(asked.settings, [], why="its forecast failed")
        profile = profile_of(forecast, asked.settings, slot_s, self.settings.promises, asked.sizing)
        self._say(e.Forecasted(asked.application, asked.settings, profile, forecast.by, forecast.error, asked.sizing))

    def _forecast(self, application: str, settings: Settings) -> tuple[Forecast, float]:
        """Use the runs with equal settings if there are enough of them; otherwise all runs of the application."""
        store, known = self._store(), self._application(application)
        same = self._history(store.runs(application, settings=settings))
        if len(same.runs) >= self.settings.rules.runs:
            return known.forecast(settings, same), same.slot_s
        history = self._history(store.runs(application))
        if not known.looked_at:
            self._learn(application, store)
        return known.forecast(settings, history), history.slot_s

    def _keep(self, stored: StoreRun, ended_at: float) -> None:
        try:
            store = self._store()
            store.add(stored.application, stored.usage, ended_at=ended_at, slot_s=stored.slot_s, name=stored.run)
            self._say(e.ForecastsOutdated(stored.application))
            self._learn(stored.application, store)
        except StoreError as error:
            self._complain(error)

    def _history(self, recorded: list[Recorded]) -> History:
        return History.of([(each.slot_s, each.run) for each in recorded], self.settings)

    def _application(self, name: str) -> Application:
        with self._lock:
            known = self._applications.pop(name, None) or Application(self.settings)
            self._applications[name] = known
            while len(self._applications) > _MOST_APPLICATIONS:
                del self._applications[next(iter(self._applications))]
            return known

    def _known(self, name: str) -> Application:
        """Return an application for a reader; an unknown one is not kept, as it would displace a trained one."""
        with self._lock:
            return self._applications.get(name) or Application(self.settings)

    def _store(self) -> Depository:
        """Return the store, opened on first use. Raises StoreError."""
        if self._depository is None:
            if time.monotonic() - self._tried_at < _RETRY_S:
                raise StoreError(self._trouble)
            self._tried_at = time.monotonic()
            try:
                self._database = Database(self._url)
            except StoreError as error:
                self._trouble = str(error)
                raise
            self._depository = Depository(self._database)
        return self._depository

    def _complain(self, error: StoreError) -> None:
        """Log a store error once."""
        if str(error) != self._trouble or self._depository is None:
            log.warning("executors are reserved their bounds", reason=str(error))
        self._trouble = str(error)

    # ------------------------------------------------------------ learning

    def _learn(self, application: str, store: Depository) -> None:
        """Start training for an application with enough different settings; runs that arrive meanwhile are included."""
        different = store.count_settings(application)
        self._application(application).looked_at = True
        if different < self.settings.rules.settings:
            return
        with self._lock:
            if application in self._learning or self._stopping.is_set():
                return
            self._learning.add(application)
        self._models.submit(self._root, self._train, application)

    def _train(self, application: str) -> None:
        with self._lock:
            self._learning.discard(application)
        asked: Future[list[Recorded]] = self._answers.submit(lambda: self._store().runs(application))
        try:
            history = self._history(asked.result())
        except (StoreError, CancelledError):
            return
        try:
            predictor = self._train_models(self.settings.rules, history.to_learn(), self._stopping)
        except TrainingError as error:
            log.warning("no model was learnt", application=application, reason=str(error))
            return
        if predictor is not None:
            self._complain_of_models(predictor.unavailable)
            self._application(application).learnt_from(history, predictor)
            # In the thread of answers: a forecast that was made before must not arrive after it.
            self._answers.submit(self._say, e.ForecastsOutdated(application))

    def _complain_of_models(self, unavailable: dict[str, str]) -> None:
        """Log each model that training lacks, once."""
        for name, why in unavailable.items():
            if self._unavailable.get(name) != why:
                log.warning("forecasts are made without a model", model=name, reason=why)
        self._unavailable = dict(unavailable)

    def _say(self, event: e.Forecasted | e.ForecastsOutdated) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._tell, event)
