"""Simulate jobs with a size on one server that all jobs share continuously: the model of LAS_MQ §5.4.

The simulation is exact: time jumps from event to event, without a time step. The model has no hosts, tasks or stages.
"""

from simulator.fluid.engine import Job, serve
from simulator.fluid.model import run
from simulator.fluid.spec import Spec

__all__ = ["Job", "Spec", "run", "serve"]
