"""Parse public traces into typed records. Only :func:`text_of` reads a file; the parsers take text.

Each parser takes ``where``, the name that precedes the line number in error messages.
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
