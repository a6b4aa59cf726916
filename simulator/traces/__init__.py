"""Public traces as typed records: pure parsers of text; :func:`text_of` alone reads a file.

Each takes ``where``, the name to put before a line's number when something is wrong with it.
"""

from simulator.traces.dags import TpchDag, TpchStage, Workflow, WorkflowTask, tpch_dags, workflows
from simulator.traces.errors import TraceError, text_of
from simulator.traces.lumos import LumosRun, LumosSample, lumos
from simulator.traces.swim import SwimJob, swim

__all__ = [
    "LumosRun",
    "LumosSample",
    "SwimJob",
    "TpchDag",
    "TpchStage",
    "TraceError",
    "Workflow",
    "WorkflowTask",
    "lumos",
    "swim",
    "text_of",
    "tpch_dags",
    "workflows",
]
