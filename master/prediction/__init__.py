"""PURE. Prediction of an executor's use over time, from earlier similar executors (Elasecutor §II.B, §IV.C)."""

from master.prediction.choice import Predictor, Rules, reservation
from master.prediction.errors import Errors, errors_of
from master.prediction.reserved_slots import ReservedSlots, profile_of
from master.prediction.runs import Forecast, Run, Settings

__all__ = [
    "Errors",
    "Forecast",
    "Predictor",
    "ReservedSlots",
    "Rules",
    "Run",
    "Settings",
    "errors_of",
    "profile_of",
    "reservation",
]
